// Package auditview shows records, and counts of them, to people and programs: as an aligned table on a terminal, with
// tabs elsewhere, and as JSON, JSON lines and CSV.
//
//	p := auditview.NewPrinter(os.Stdout, auditview.Options{Format: auditview.Table, Width: 80}, auditview.Column{Name: "host"}, ...)
//	err := p.Row("a.example", int64(12), 3*time.Second)
//	err = p.Close()
//
// What clients and sites send is data in all formats: see safetext, and cells of CSV are no formulas for spreadsheets.
package auditview

import (
	"bufio"
	"encoding/csv"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// Format is a form of output.
type Format string

// The formats.
const (
	Table Format = "table" // for people
	JSON  Format = "json"  // one array, or one object
	JSONL Format = "jsonl" // an object on each line
	CSV   Format = "csv"   // RFC 4180, with a header
)

// Formats are all formats.
var Formats = []Format{Table, JSON, JSONL, CSV}

// Options say how output looks. The zero Format is Table.
type Options struct {
	Format Format
	Width  int            // of the terminal, in columns; 0 without one
	Colour bool           // in tables
	Zone   *time.Location // of times in tables; if nil, UTC
	Now    time.Time      // on a terminal, times omit the day or the year that they share with it
}

// Column describes the values at one place of all rows.
type Column struct {
	Name  string // in JSON and CSV; if empty, the column is only in tables
	Title string // in tables; if empty, the column is not in tables
	Least int    // if not zero, a terminal that is too narrow cuts this column first, to this width
}

// Printer writes rows. It needs memory for some hundred rows, however many there are. It must be closed.
type Printer struct {
	out     *bufio.Writer
	options Options
	columns []Column
	rows    int // written, or held
	line    []byte
	csv     *csv.Writer
	table   table
}

// NewPrinter returns a Printer to w.
func NewPrinter(w io.Writer, o Options, columns ...Column) *Printer {
	p := &Printer{out: bufio.NewWriter(w), options: o, columns: columns}
	p.csv = csv.NewWriter(p.out)
	p.table = table{out: p.out, options: o}
	for _, c := range columns {
		if c.Title != "" {
			p.table.columns = append(p.table.columns, c)
		}
	}
	return p
}

// Row writes one value for each column: a string, a policy.Outcome, an int64, a time.Duration or a time.Time.
func (p *Printer) Row(values ...any) error {
	switch p.options.Format {
	case JSON, JSONL:
		return p.object(func(b []byte) []byte { return p.appendObject(b, values) })
	case CSV:
		p.begin()
		return p.csv.Write(p.fields(values))
	}
	p.begin()
	cells := make([]cell, 0, len(p.table.columns))
	for i, c := range p.columns {
		if c.Title != "" {
			cells = append(cells, newCell(values[i], p.options))
		}
	}
	return p.table.row(cells)
}

// begin counts a row, and writes the part of the output before the first one.
func (p *Printer) begin() {
	p.rows++
	if p.rows > 1 {
		return
	}
	p.open()
}

func (p *Printer) open() {
	switch p.options.Format {
	case JSON:
		_, _ = p.out.WriteString("[") // errors of a bufio.Writer stay until Flush
	case CSV:
		var header []string
		for _, c := range p.columns {
			if c.Name != "" {
				header = append(header, c.Name)
			}
		}
		_ = p.csv.Write(header)
	}
}

// object writes a row as the JSON object that write appends.
func (p *Printer) object(write func([]byte) []byte) error {
	p.begin()
	b := p.line[:0]
	switch {
	case p.options.Format == JSONL:
		b = append(write(b), '\n')
	case p.rows > 1:
		b = write(append(b, ",\n"...))
	default:
		b = write(append(b, '\n'))
	}
	p.line = b
	_, err := p.out.Write(b)
	return err
}

func (p *Printer) appendObject(b []byte, values []any) []byte {
	b = append(b, '{')
	for i, c := range p.columns {
		if c.Name == "" {
			continue
		}
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), c.Name...), `":`...)
		b = appendValue(b, values[i])
	}
	return append(b, '}')
}

func (p *Printer) fields(values []any) (fields []string) {
	for i, c := range p.columns {
		if c.Name != "" {
			fields = append(fields, Field(values[i]))
		}
	}
	return fields
}

// Flush writes all rows so far.
func (p *Printer) Flush() error {
	p.csv.Flush()
	if err := p.csv.Error(); err != nil {
		return err
	}
	if err := p.table.flush(); err != nil {
		return err
	}
	return p.out.Flush()
}

// Close writes the rest. A table without rows has no header.
func (p *Printer) Close() error {
	if p.rows == 0 {
		p.open()
	}
	if err := p.Flush(); err != nil {
		return err
	}
	if p.options.Format == JSON {
		end := "\n]\n"
		if p.rows == 0 {
			end = "]\n"
		}
		_, _ = p.out.WriteString(end)
	}
	return p.out.Flush()
}

// table aligns rows. On a terminal it holds back the first rows to learn how wide the columns are; later rows may
// exceed them.
type table struct {
	out     *bufio.Writer
	options Options
	columns []Column
	held    [][]cell
	titled  bool // the header is written
	widths  []int
}

// heldRows is the number of rows that determine the widths of the columns.
const heldRows = 200

func (t *table) row(cells []cell) error {
	t.held = append(t.held, cells)
	if len(t.held) < heldRows && !t.titled {
		return nil
	}
	return t.flush()
}

func (t *table) flush() error {
	if len(t.held) == 0 {
		return nil
	}
	if !t.titled {
		t.titled = true
		t.held = append([][]cell{t.header()}, t.held...)
		t.measure()
	}
	for _, cells := range t.held {
		if err := t.line(cells); err != nil {
			return err
		}
	}
	t.held = t.held[:0]
	return nil
}

// header returns the titles, aligned like the values below them.
func (t *table) header() (cells []cell) {
	for i, c := range t.columns {
		cells = append(cells, cell{text: c.Title, right: t.held[0][i].right, style: faint})
	}
	return cells
}

// gap divides columns on a terminal.
const gap = "  "

func (t *table) measure() {
	t.widths = make([]int, len(t.columns))
	total := -len(gap)
	for i := range t.columns {
		for _, cells := range t.held {
			t.widths[i] = max(t.widths[i], cells[i].width())
		}
		total += t.widths[i] + len(gap)
	}
	for ; t.options.Width > 0 && total > t.options.Width; total-- {
		widest := t.widestElastic()
		if widest < 0 {
			return
		}
		t.widths[widest]--
	}
}

// widestElastic returns the index of the widest column that may be narrower, or -1.
func (t *table) widestElastic() int {
	widest := -1
	for i, c := range t.columns {
		if c.Least > 0 && t.widths[i] > c.Least && (widest < 0 || t.widths[i] > t.widths[widest]) {
			widest = i
		}
	}
	return widest
}

func (t *table) line(cells []cell) error {
	var b strings.Builder
	if t.options.Width == 0 {
		for i, c := range cells {
			if i > 0 {
				b.WriteByte('\t')
			}
			b.WriteString(c.text)
		}
	} else {
		t.align(&b, cells)
	}
	_, err := t.out.WriteString(b.String() + "\n")
	return err
}

func (t *table) align(b *strings.Builder, cells []cell) {
	left := t.options.Width
	pending := "" // spaces before the next text
	for i, c := range cells {
		if t.columns[i].Least > 0 {
			c.text = Cut(c.text, t.widths[i])
		}
		pad := strings.Repeat(" ", max(0, t.widths[i]-c.width()))
		if c.right {
			pending += pad
		}
		if c.text != "" {
			if left -= len(pending); left <= 0 {
				return
			}
			b.WriteString(pending)
			pending = ""
			c.text = Cut(c.text, left)
			left -= c.width()
			b.WriteString(c.styled(t.options.Colour))
		}
		if !c.right {
			pending += pad
		}
		pending += gap
	}
}

// Cut returns s, or its beginning with an ellipsis if s has more than the given columns. Wide characters count as one.
func Cut(s string, columns int) string {
	if utf8.RuneCountInString(s) <= columns {
		return s
	}
	return string([]rune(s)[:max(columns-1, 0)]) + "…"
}

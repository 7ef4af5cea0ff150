//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// table has the results of a scenario.
type table struct {
	scenario, title string
	columns         []column
	rows            []*row
	leftOut         []string // peers, with the reason
}

// column is a number that is measured in each round.
type column struct {
	title string
	more  bool // more is better
	ratio bool // whether robotsproxy is compared with the others
}

// row is a peer.
type row struct {
	name        string
	robotsproxy bool
	values      map[string][]float64 // by the title of a column
	failure     error
}

func newTable(s *scenario, columns []column) *table {
	return &table{scenario: s.name, title: s.title, columns: slices.Clone(columns)}
}

func (t *table) row(name string) *row {
	r := &row{name: name, robotsproxy: name == robotsproxyName, values: make(map[string][]float64)}
	t.rows = append(t.rows, r)
	return r
}

func (t *table) leaveOut(name, reason string) { t.leftOut = append(t.leftOut, name+": "+reason) }

func (r *row) add(title string, value float64) { r.values[title] = append(r.values[title], value) }

// sum sorts the values of each row, and turns the rows that failed into peers that are left out.
func (t *table) sum() {
	for _, r := range t.rows {
		for _, values := range r.values {
			slices.Sort(values)
		}
		if r.failure != nil {
			t.leaveOut(r.name, "it failed: "+firstLine(r.failure))
		}
	}
	t.rows = slices.DeleteFunc(t.rows, func(r *row) bool { return r.failure != nil })
	t.columns = slices.DeleteFunc(t.columns, func(c column) bool {
		return !slices.ContainsFunc(t.rows, func(r *row) bool { return len(r.values[c.title]) > 0 })
	})
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// find returns the row with a name, or nil.
func (t *table) find(name string) *row {
	i := slices.IndexFunc(t.rows, func(r *row) bool { return r.name == name })
	if i < 0 {
		return nil
	}
	return t.rows[i]
}

// ratio says how many times better robotsproxy is than another row. It is false if that cannot be said.
func (t *table) ratio(c column, other *row) (float64, bool) {
	own := t.find(robotsproxyName)
	if own == nil || own == other || len(own.values[c.title]) == 0 || len(other.values[c.title]) == 0 {
		return 0, false
	}
	a, b := median(own.values[c.title]), median(other.values[c.title])
	if !c.more {
		a, b = b, a
	}
	return a / b, a > 0 && b > 0
}

// state is what the machine did at the begin.
type state struct {
	when time.Time
	load string // the load average of the last minute
}

func now() state {
	text, _ := os.ReadFile("/proc/loadavg")
	load, _, _ := strings.Cut(string(text), " ")
	return state{time.Now(), load}
}

// busyBefore reports whether other programs used the machine before the measurement began.
func (s state) busyBefore() bool {
	load, err := strconv.ParseFloat(s.load, 64)
	return err != nil || load > 0.5
}

var modelName = regexp.MustCompile(`(?m)^model name\s*: (.*)$`)

func processorName() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	if m := modelName.FindSubmatch(info); m != nil {
		return string(bytes.TrimSpace(m[1]))
	}
	return "unnamed processor"
}

func kernel() string {
	text, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return strings.TrimSpace(string(text))
}

const legend = `Each figure is the median of the rounds, with the least and the most. × says how many times better robotsproxy is than the
proxy of the row: from 1 on it is as good. The proxies have one processor, and the clients and the origin the others. If
"CPU busy" is far below 100 %, the requests/s are those of the clients, and the CPU time is the figure to compare. "no
proxy" is the same load without a proxy.
`

// report writes all tables as Markdown.
func (b *bench) report(w io.Writer) {
	fmt.Fprintf(w, "%s, %d cores, Linux %s, %s. %s; %d rounds of %s. The load average before was %s.\n", processorName(),
		runtime.NumCPU(), kernel(), runtime.Version(), b.begun.when.Format(time.DateOnly), b.rounds, b.duration, b.begun.load)
	if b.begun.busyBefore() {
		fmt.Fprintf(w, "\n**Other programs used the processors too: these figures are not final.**\n")
	}
	fmt.Fprintf(w, "\n    go run ./peers %s\n\n%s\n", strings.Join(os.Args[1:], " "), legend)
	writeRow(w, "proxy", "version", "settings")
	writeRow(w, "---", "---", "---")
	for _, p := range b.peers {
		writeRow(w, p.name, p.version, p.about)
	}
	for _, reason := range b.absent {
		fmt.Fprintf(w, "\nLeft out: %s.\n", reason)
	}
	for _, t := range b.tables {
		t.write(w)
	}
}

func (t *table) write(w io.Writer) {
	fmt.Fprintf(w, "\n### %s\n\n", t.title)
	titles, rule := []string{t.scenario}, []string{"---"}
	for _, c := range t.columns {
		titles, rule = append(titles, c.title), append(rule, "---")
		if c.ratio {
			titles, rule = append(titles, "×"), append(rule, "---")
		}
	}
	writeRow(w, titles...)
	writeRow(w, rule...)
	for _, r := range t.rows {
		writeRow(w, t.cells(r)...)
	}
	if len(t.leftOut) > 0 {
		fmt.Fprintf(w, "\nLeft out: %s.\n", strings.Join(t.leftOut, "; "))
	}
}

func (t *table) cells(r *row) []string {
	cells := []string{r.name}
	for _, c := range t.columns {
		cells = append(cells, spread(r.values[c.title]))
		if !c.ratio {
			continue
		}
		cell := ""
		if ratio, ok := t.ratio(c, r); ok && r.name != directName {
			cell = strconv.FormatFloat(ratio, 'f', 2, 64)
		}
		cells = append(cells, cell)
	}
	return cells
}

// spread returns the median of sorted values, with the least and the most if they differ.
func spread(sorted []float64) string {
	if len(sorted) == 0 {
		return ""
	}
	least, mid, most := number(sorted[0]), number(median(sorted)), number(sorted[len(sorted)-1])
	if least == most {
		return mid
	}
	return fmt.Sprintf("%s (%s to %s)", mid, least, most)
}

// number has three digits at least, and none after the point from 100 on.
func number(f float64) string {
	digits := 2
	switch {
	case f >= 100 || f <= -100 || f == float64(int(f)):
		digits = 0
	case f >= 10 || f <= -10:
		digits = 1
	}
	return strconv.FormatFloat(f, 'f', digits, 64)
}

func writeRow(w io.Writer, cells ...string) { fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")) }

func mebi(bytes int64) float64 { return float64(bytes) / (1 << 20) }

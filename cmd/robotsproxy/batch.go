package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/robotsproxy/robotsproxy/rules"
)

// question is one line of a batch.
type question struct {
	Robots    *string `json:"robots"`
	RobotsB64 *string `json:"robots_b64"`
	UA        *string `json:"ua"`
	URL       *string `json:"url"`
	URLB64    *string `json:"url_b64"` // raw octets, which JSON has no way to write
	Dialect   *string `json:"dialect"`
	RobotsURL *string `json:"robots_url"`
}

// batch answers questions, one JSON object a line, in the order in which they come. What it parses, and the agents that
// it finds, are kept for the lines that follow: in a batch few files are asked about often.
type batch struct {
	dialect rules.Dialect // of questions that name none
	files   map[string]*batchFile
	texts   map[string]string // JSON strings, decoded
	kept    int               // octets in files and texts
	key     []byte
	out     []byte
}

// batchFile is a file, with what is written of it again and again.
type batchFile struct {
	set      *rules.Ruleset
	sitemaps []byte // in JSON
	agents   map[string]*batchAgent
	rules    map[int][]byte // by line, in JSON
}

type batchAgent struct {
	rules.Agent
	delay []byte // in JSON
}

// keptAtMost is how many octets of questions a batch remembers.
const keptAtMost = 64 << 20

func newBatch(d rules.Dialect) *batch {
	b := &batch{dialect: d}
	b.forget()
	return b
}

func (b *batch) forget() {
	b.files, b.texts, b.kept = make(map[string]*batchFile), make(map[string]string), 0
}

// run answers until there is no line left. A line that is no question gets an answer that says so.
func (b *batch) run(in io.Reader, out io.Writer) error {
	lines := bufio.NewReaderSize(in, 1<<20)
	answers := bufio.NewWriterSize(out, 1<<16)
	var long []byte
	for {
		line, err := lines.ReadSlice('\n')
		for errors.Is(err, bufio.ErrBufferFull) {
			long = append(long, line...)
			line, err = lines.ReadSlice('\n')
		}
		if len(long) > 0 {
			long = append(long, line...)
			line = long
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("reading the batch: %w", err)
		}
		if len(line) > 0 {
			if _, err := answers.Write(b.answer(bytes.TrimRight(line, "\r\n"))); err != nil {
				return fmt.Errorf("writing the answers: %w", err)
			}
		}
		long = long[:0]
		if err != nil || lines.Buffered() == 0 {
			if err := answers.Flush(); err != nil {
				return fmt.Errorf("writing the answers: %w", err)
			}
		}
		if err != nil {
			return nil
		}
	}
}

// answer answers one line. The answer is good until the next.
func (b *batch) answer(line []byte) []byte {
	q, err := b.question(line)
	if err == nil {
		b.out, err = b.appendAnswer(b.out[:0], &q)
	}
	if err != nil {
		text, _ := json.Marshal(map[string]string{"error": err.Error()})
		b.out = append(b.out[:0], text...)
	}
	b.out = append(b.out, '\n')
	return b.out
}

func (b *batch) appendAnswer(dst []byte, q *question) ([]byte, error) {
	file, err := b.file(q)
	if err != nil {
		return dst, err
	}
	target, err := q.target()
	if err != nil {
		return dst, err
	}
	if q.UA == nil {
		return dst, errors.New("ua is missing")
	}
	agent := file.agent(*q.UA)
	v := agent.Verdict(target)
	dst = append(dst, `{"allowed":`...)
	dst = strconv.AppendBool(dst, v.Allowed)
	dst = append(dst, `,"line":`...)
	dst = strconv.AppendInt(dst, int64(v.Line), 10)
	dst = append(dst, `,"rule":`...)
	dst = append(dst, file.rule(v)...)
	dst = append(dst, `,"crawl_delay":`...)
	dst = append(dst, agent.delay...)
	dst = append(dst, `,"sitemaps":`...)
	dst = append(dst, file.sitemaps...)
	return append(dst, '}'), nil
}

func (q *question) target() (string, error) {
	switch {
	case q.URL != nil && q.URLB64 != nil:
		return "", errors.New("there are both url and url_b64")
	case q.URL != nil:
		return *q.URL, nil
	case q.URLB64 == nil:
		return "", errors.New("url is missing")
	}
	target, err := base64.StdEncoding.DecodeString(*q.URLB64)
	if err != nil {
		return "", fmt.Errorf("reading url_b64: %w", err)
	}
	return string(target), nil
}

// file finds the file that a question is about among those that are kept, or parses it.
func (b *batch) file(q *question) (*batchFile, error) {
	dialect := b.dialect
	if q.Dialect != nil {
		var err error
		if dialect, err = rules.ParseDialect(*q.Dialect); err != nil {
			return nil, err
		}
	}
	body, kind := q.Robots, byte(0)
	switch {
	case q.Robots != nil && q.RobotsB64 != nil:
		return nil, errors.New("there are both robots and robots_b64")
	case q.RobotsB64 != nil:
		body, kind = q.RobotsB64, 1
	case q.Robots == nil:
		return nil, errors.New("robots is missing")
	}
	var robotsURL string
	if q.RobotsURL != nil {
		robotsURL = *q.RobotsURL
	}
	b.key = binary.AppendUvarint(append(b.key[:0], kind, byte(dialect)), uint64(len(robotsURL)))
	b.key = append(append(b.key, robotsURL...), *body...)
	if file, ok := b.files[string(b.key)]; ok {
		return file, nil
	}
	text := []byte(*body)
	if kind == 1 {
		var err error
		if text, err = base64.StdEncoding.DecodeString(*body); err != nil {
			return nil, fmt.Errorf("reading robots_b64: %w", err)
		}
	}
	file := newBatchFile(rules.Parse(text, rules.Options{Dialect: dialect, RobotsURL: robotsURL, ContentType: rawType(text)}))
	b.keep(len(b.key) + file.set.Size())
	b.files[string(b.key)] = file
	return file, nil
}

// rawType is the Content-Type of octets that nobody has labelled: what is UTF-8 is read as that, and else the dialect's own
// charset holds.
func rawType(body []byte) string {
	if utf8.Valid(body) {
		return ""
	}
	return "text/plain"
}

// keep makes room for what is about to be kept.
func (b *batch) keep(octets int) {
	if b.kept += octets; b.kept > keptAtMost {
		b.forget()
		b.kept = octets
	}
}

func newBatchFile(set *rules.Ruleset) *batchFile {
	sitemaps := set.Sitemaps()
	if sitemaps == nil {
		sitemaps = []string{}
	}
	return &batchFile{set: set, sitemaps: appendJSON(nil, sitemaps), agents: make(map[string]*batchAgent), rules: make(map[int][]byte)}
}

// agentsAtMost is how many agents are kept for each file.
const agentsAtMost = 1000

func (f *batchFile) agent(ua string) *batchAgent {
	if a, ok := f.agents[ua]; ok {
		return a
	}
	a := &batchAgent{Agent: f.set.Agent(ua), delay: []byte("null")}
	if d, ok := a.CrawlDelay(); ok {
		a.delay = appendJSON(nil, d.Seconds())
	}
	if len(f.agents) >= agentsAtMost {
		clear(f.agents)
	}
	f.agents[ua] = a
	return a
}

// rule returns the rule of a verdict in JSON; "" if there is none.
func (f *batchFile) rule(v rules.Verdict) []byte {
	text, ok := f.rules[v.Line]
	if !ok {
		text = appendJSON(nil, v.Rule)
		f.rules[v.Line] = text
	}
	return text
}

// appendJSON appends what always has a form in JSON.
func appendJSON(dst []byte, v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}

// question reads a line. Nearly all lines are objects of known names and strings, which are read here; all others are
// left to encoding/json, which says what is wrong with them.
func (b *batch) question(line []byte) (q question, err error) {
	if b.plain(line, &q) {
		return q, nil
	}
	q = question{}
	if err := json.Unmarshal(line, &q); err != nil {
		return q, fmt.Errorf("reading the line: %w", err)
	}
	return q, nil
}

// plain reads a line that is an object of known names and strings, and reports whether it is one.
func (b *batch) plain(line []byte, q *question) bool {
	rest, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("{"))
	for ok {
		var name, value []byte
		if name, rest, ok = cutString(bytes.TrimLeft(rest, " \t")); !ok {
			return false
		}
		field := q.field(name)
		if rest, ok = bytes.CutPrefix(bytes.TrimLeft(rest, " \t"), []byte(":")); !ok || field == nil {
			return false
		}
		if value, rest, ok = cutString(bytes.TrimLeft(rest, " \t")); !ok {
			return false
		}
		text, ok := b.text(value)
		if !ok {
			return false
		}
		*field = &text
		rest = bytes.TrimLeft(rest, " \t")
		if len(rest) == 1 && rest[0] == '}' {
			return true
		}
		if rest, ok = bytes.CutPrefix(rest, []byte(",")); !ok {
			return false
		}
	}
	return false
}

// field returns the field of a name, with its quotes; nil if there is none.
func (q *question) field(name []byte) **string {
	switch string(name) {
	case `"robots"`:
		return &q.Robots
	case `"robots_b64"`:
		return &q.RobotsB64
	case `"ua"`:
		return &q.UA
	case `"url"`:
		return &q.URL
	case `"url_b64"`:
		return &q.URLB64
	case `"dialect"`:
		return &q.Dialect
	case `"robots_url"`:
		return &q.RobotsURL
	}
	return nil
}

// cutString cuts a JSON string off, with its quotes, at the first quote that no backslash stands in front of.
func cutString(s []byte) (text, rest []byte, ok bool) {
	if len(s) == 0 || s[0] != '"' {
		return nil, s, false
	}
	for i := 1; ; i++ {
		n := bytes.IndexByte(s[i:], '"')
		if n < 0 {
			return nil, s, false
		}
		i += n
		slashes := 0
		for s[i-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return s[:i+1], s[i+1:], true
		}
	}
}

// text decodes a JSON string, unless it has been decoded before.
func (b *batch) text(quoted []byte) (string, bool) {
	if text, ok := b.texts[string(quoted)]; ok {
		return text, true
	}
	var text string
	if isPlainText(quoted[1 : len(quoted)-1]) {
		text = string(quoted[1 : len(quoted)-1])
	} else if json.Unmarshal(quoted, &text) != nil {
		return "", false
	}
	b.keep(2*len(quoted) + 64)
	b.texts[string(quoted)] = text
	return text, true
}

// isPlainText reports whether a JSON string is what it stands for.
func isPlainText(s []byte) bool {
	for _, c := range s {
		if c < ' ' || c >= 0x80 || c == '\\' {
			return false
		}
	}
	return true
}

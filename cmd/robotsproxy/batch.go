package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/robotsproxy/robotsproxy/internal/safetext"
	"github.com/robotsproxy/robotsproxy/rules"
)

// question is one line of a batch.
type question struct {
	Robots    *string `json:"robots"`
	RobotsB64 *string `json:"robots_b64"`
	UA        *string `json:"ua"`
	URL       *string `json:"url"`
	URLB64    *string `json:"url_b64"` // arbitrary bytes, which JSON cannot represent
	Dialect   *string `json:"dialect"`
	RobotsURL *string `json:"robots_url"`
}

// batchAnswer is the answer to a question.
type batchAnswer struct {
	Allowed    bool     `json:"allowed"`
	Line       int      `json:"line"`
	Rule       string   `json:"rule"`
	CrawlDelay *float64 `json:"crawl_delay"` // seconds
	Sitemaps   []string `json:"sitemaps"`
	TooComplex bool     `json:"too_complex,omitempty"` // the verdict takes too many steps, so the URL is refused
}

// batch answers questions, one JSON object per line, in their order. It keeps the parsed file of the last question,
// since the next one is often about the same file.
type batch struct {
	dialect rules.Dialect // of questions without a dialect

	source batchSource // of rules
	rules  *rules.Ruleset
}

// batchSource is all that determines how a file is read.
type batchSource struct {
	body, robotsURL string
	dialect         rules.Dialect
}

// run answers every line of in. A line that is not a question gets an answer with the error. run returns an error only
// if reading or writing fails.
func (b *batch) run(in io.Reader, out io.Writer) error {
	lines := bufio.NewReaderSize(in, 1<<16)
	answers := bufio.NewWriterSize(out, 1<<16)
	encoder := json.NewEncoder(safetext.JSONWriter(answers))
	encoder.SetEscapeHTML(false)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("reading the batch: %w", err)
		}
		if len(line) > 0 {
			if err := encoder.Encode(b.answer(line)); err != nil {
				return fmt.Errorf("writing the answers: %w", err)
			}
		}
		// A program may wait for an answer before it writes the next line.
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

// answer returns the answer to one line: a batchAnswer or an error.
func (b *batch) answer(line []byte) any {
	a, err := b.judge(line)
	if err != nil {
		return struct {
			Error string `json:"error"`
		}{err.Error()}
	}
	return a
}

func (b *batch) judge(line []byte) (*batchAnswer, error) {
	var q question
	if err := json.Unmarshal(bytes.TrimRight(line, "\r\n"), &q); err != nil {
		return nil, fmt.Errorf("reading the line: %w", err)
	}
	if err := b.open(&q); err != nil {
		return nil, err
	}
	target, err := either("url", q.URL, q.URLB64)
	if err != nil {
		return nil, err
	}
	if q.UA == nil {
		return nil, errors.New("ua is missing")
	}
	agent := b.rules.Agent(*q.UA)
	v := agent.Verdict(target)
	a := &batchAnswer{
		Allowed: v.Allowed, Line: v.Line, Rule: v.Rule, TooComplex: v.TooComplex, Sitemaps: b.rules.Sitemaps(),
	}
	if a.Sitemaps == nil {
		a.Sitemaps = []string{} // [] and not null
	}
	if d, ok := agent.CrawlDelay(); ok {
		seconds := inSeconds(d)
		a.CrawlDelay = &seconds
	}
	return a, nil
}

// open parses the file that q is about, unless it is the same as that of the last question.
func (b *batch) open(q *question) error {
	source, err := q.source(b.dialect)
	if err != nil {
		return err
	}
	if b.rules != nil && source == b.source {
		return nil
	}
	body := []byte(source.body)
	b.source, b.rules = source, rules.Parse(body, rules.Options{
		Dialect: source.dialect, RobotsURL: source.robotsURL, ContentType: rawType(body),
	})
	return nil
}

// source returns the file that q is about, in the given dialect unless q names one.
func (q *question) source(dialect rules.Dialect) (s batchSource, err error) {
	s.dialect = dialect
	if q.Dialect != nil {
		if s.dialect, err = rules.ParseDialect(*q.Dialect); err != nil {
			return s, err
		}
	}
	if q.RobotsURL != nil {
		s.robotsURL = *q.RobotsURL
	}
	s.body, err = either("robots", q.Robots, q.RobotsB64)
	return s, err
}

// either returns the value of the field name, of which a question has either the text or, as name_b64, its base64.
func either(name string, text, encoded *string) (string, error) {
	switch {
	case text != nil && encoded != nil:
		return "", fmt.Errorf("both %s and %s_b64 are given", name, name)
	case text != nil:
		return *text, nil
	case encoded == nil:
		return "", fmt.Errorf("%s is missing", name)
	}
	decoded, err := base64.StdEncoding.DecodeString(*encoded)
	if err != nil {
		return "", fmt.Errorf("reading %s_b64: %w", name, err)
	}
	return string(decoded), nil
}

// rawType returns a Content-Type for a body that came without one. It makes rules.Parse read valid UTF-8 as UTF-8, and
// everything else in the dialect's own charset.
func rawType(body []byte) string {
	if utf8.Valid(body) {
		return ""
	}
	return "text/plain"
}

package requestlog

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/robotsproxy/robotsproxy/internal/safetext"
)

// write writes the line of e.
func (l *Log) write(e event) {
	o, ctx := l.options, context.Background()
	if !o.Logger.Enabled(ctx, slog.LevelInfo) {
		return
	}
	if o.Text == nil {
		o.Logger.LogAttrs(ctx, slog.LevelInfo, e.message(), e.attrs()...)
		return
	}
	line := safetext.Text(e.text())
	if o.Width != nil {
		line = cutColumns(line, o.Width())
	}
	if o.Colour {
		line = colour(line, e.word())
	}
	_, _ = fmt.Fprintln(o.Text, line) // the terminal is gone
}

// cutColumns cuts a line at a number of columns, unless that is 0. Wide characters count as one.
func cutColumns(line string, columns int) string {
	if columns < 1 || utf8.RuneCountInString(line) <= columns {
		return line
	}
	return string([]rune(line)[:columns-1]) + "…"
}

// kindAt is the place of the first word in a line, after the time.
const kindAt = len("15:04:05  ")

// word returns the first word of the line: the kind, or refused for refusals that have no line of their own.
func (e event) word() string {
	if e.kind == others {
		return refused
	}
	return e.kind
}

// colour adds a colour to the first word: red for requests that are refused for good, yellow for those that may come
// again.
func colour(line, word string) string {
	code := "33"
	switch word {
	case access:
		return line
	case blocked, refused:
		code = "31"
	}
	end := kindAt + len(word)
	if len(line) < end {
		return line
	}
	return line[:kindAt] + "\x1b[" + code + "m" + line[kindAt:end] + "\x1b[0m" + line[end:]
}

// text returns the line in columns.
func (e event) text() string {
	at := e.time.Local().Format("15:04:05")
	switch e.kind {
	case access:
		return fmt.Sprintf("%s  %-11s  %-14s  %-7s  %s  %s", at, e.decision, e.asker(), e.method, e.place(), e.figures())
	case paused:
		return fmt.Sprintf("%s  %-8s  %-14s  %s", at, e.kind, e.place(), e.pauseText()) + e.moreText()
	case unreachable:
		return fmt.Sprintf("%s  %s  %s  %s", at, e.kind, e.place(), e.unreachableText()) + e.moreText()
	case others:
		return fmt.Sprintf("%s  %-8s  other clients, hosts and rules", at, e.word()) + e.moreText()
	case dropped:
		return fmt.Sprintf("%s  %-8s  lines that could not be written in time", at, e.kind) + e.moreText()
	}
	return fmt.Sprintf("%s  %-8s  %-14s  %-26s  %s", at, e.kind, e.asker(), e.place(), e.causeText()) + e.moreText()
}

func (e event) moreText() string {
	if e.more == 0 {
		return ""
	}
	return "  (+" + strconv.FormatInt(e.more, 10) + " more)"
}

// causeText returns the cause, and when to come back.
func (e event) causeText() string {
	if e.kind != throttled {
		return e.cause()
	}
	return fmt.Sprintf("%d %s, Retry-After %d s", e.status, e.reason, e.retryAfter)
}

func (e event) pauseText() string {
	source := "Retry-After"
	if e.pause.Source != "retry-after" {
		source = "back-off"
	}
	text := fmt.Sprintf("%d, %s %s", e.status, source, span(e.pause.Until.Sub(e.time)))
	if e.pause.Waiting > 0 {
		text += fmt.Sprintf("; %s wait", requests(e.pause.Waiting))
	}
	return text
}

func requests(n int) string {
	if n == 1 {
		return "1 request"
	}
	return strconv.Itoa(n) + " requests"
}

func (e event) unreachableText() string {
	cause := shortError(e.err)
	if cause == "" && e.robotsStatus != 0 {
		cause = "the origin answered " + strconv.Itoa(e.robotsStatus)
	}
	text := "robots.txt: " + cause + "; requests get " + strconv.Itoa(e.status)
	if e.retryAfter > 0 {
		text += ", next try in " + span(time.Duration(e.retryAfter)*time.Second)
	}
	return text
}

// shortError returns the last part of an error of a connection. The parts before repeat addresses: "dial tcp: lookup
// a.example on 10.0.0.53:53: no such host".
func shortError(err string) string {
	for _, act := range []string{"dial ", "read ", "write "} {
		if i := strings.LastIndex(err, ": "); i > 0 && strings.HasPrefix(err, act) {
			return err[i+len(": "):]
		}
	}
	return err
}

// figures returns the result of a request, its size and its times.
func (e event) figures() string {
	parts := []string{strconv.Itoa(e.status)}
	if e.reason != "" {
		parts = append(parts, e.cause())
	}
	parts = append(parts, strconv.FormatInt(e.bytes, 10)+" B")
	if e.waited > 0 {
		parts = append(parts, "waited "+span(e.waited))
	}
	return strings.Join(append(parts, span(e.took)), "  ")
}

// span returns a duration in one or two units: 35 ms, 1.5 s, 59 s, 1 m 10 s, 2 h 5 m.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return strconv.FormatInt(max(0, d.Milliseconds()), 10) + " ms"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Round(100*time.Millisecond).Seconds(), 'f', -1, 64) + " s"
	}
	switch d = d.Round(time.Second); {
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return units(int(d/time.Minute), "m", int(d%time.Minute/time.Second), "s")
	}
	return units(int(d/time.Hour), "h", int(d%time.Hour/time.Minute), "m")
}

func units(n int, unit string, rest int, restUnit string) string {
	if rest == 0 {
		return fmt.Sprintf("%d %s", n, unit)
	}
	return fmt.Sprintf("%d %s %d %s", n, unit, rest, restUnit)
}

// message returns the msg of the line in the Logger.
func (e event) message() string {
	switch e.kind {
	case others:
		return "refusals of other clients, hosts and rules"
	case dropped:
		return "lines about requests could not be written in time"
	}
	return e.kind
}

// attrs returns the attributes of the line in the Logger. Their names are those of records.
func (e event) attrs() (attrs []slog.Attr) {
	text := func(name, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(name, value))
		}
	}
	number := func(name string, value int64) {
		if value != 0 {
			attrs = append(attrs, slog.Int64(name, value))
		}
	}
	switch e.kind {
	case others, dropped:
		number("more", e.more)
		return attrs
	case paused:
		text("host", e.host)
		number("status", int64(e.status))
		text("source", e.pause.Source)
		attrs = append(attrs, slog.Time("until", e.pause.Until))
		number("waiting", int64(e.pause.Waiting))
		number("more", e.more)
		return attrs
	}
	text("client", e.client)
	text("agent", e.agent)
	text("method", e.method)
	text("url", e.url())
	text("host", e.host)
	number("status", int64(e.status))
	text("decision", string(e.decision))
	text("reason", string(e.reason))
	number("rule_line", int64(e.line))
	text("rule", e.rule)
	number("retry_after", int64(e.retryAfter))
	text("error", e.err)
	if e.kind == access {
		attrs = append(attrs, slog.Duration("waited", e.waited), slog.Int64("bytes", e.bytes), slog.Duration("duration", e.took))
	}
	number("more", e.more)
	return attrs
}

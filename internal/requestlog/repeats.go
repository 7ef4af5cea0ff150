package requestlog

import (
	"cmp"
	"slices"
	"time"
)

const (
	period  = time.Minute // between two lines of one key
	maxKeys = 1000        // clients, hosts and rules with a line in one period
)

// key is common to a line and its repetitions.
type key struct {
	kind, asker, host, reason, rule string
	line                            int
}

// counted is a line that was written, and its repetitions since.
type counted struct {
	last    event
	written time.Time // when the line was written
	count   int64
}

// repeats counts the events that have had a line.
type repeats struct {
	lines map[key]*counted
	rest  counted // of keys beyond maxKeys
}

func newRepeats() repeats { return repeats{lines: make(map[key]*counted)} }

// isNew reports whether e is written at once. If not, it is counted.
func (r *repeats) isNew(e event) bool {
	k := e.key()
	c := r.lines[k]
	switch {
	case c != nil:
	case len(r.lines) < maxKeys:
		r.lines[k] = &counted{last: e, written: e.time}
		return true
	default:
		c = &r.rest
		if c.written.IsZero() {
			c.written = e.time // its first line has a count
		}
		e = event{kind: others}
	}
	c.last = e
	c.count++
	return false
}

// due returns the counts to write at now, by host, and all counts at the end. It forgets lines without repetitions.
func (r *repeats) due(now time.Time, end bool) (due []event) {
	for k, c := range r.lines {
		if !end && now.Sub(c.written) < period {
			continue
		}
		if c.count == 0 {
			delete(r.lines, k)
			continue
		}
		due = append(due, c.take(now))
	}
	slices.SortFunc(due, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.host, b.host), cmp.Compare(a.asker(), b.asker()), cmp.Compare(a.cause(), b.cause()))
	})
	if r.rest.count > 0 && (end || now.Sub(r.rest.written) >= period) {
		due = append(due, r.rest.take(now))
	}
	return due
}

// take returns the event with the count, and begins the next period.
func (c *counted) take(now time.Time) event {
	e := c.last
	e.time, e.more = now, c.count
	c.count, c.written = 0, now
	return e
}

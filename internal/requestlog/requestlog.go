// Package requestlog writes lines about requests for people who watch the program.
//
//	l := requestlog.New(requestlog.Options{Logger: log, Mode: requestlog.Refused})
//	l.Observe(record) // the request has ended
//	err := l.Close()
//
// In the mode Refused, the first refusal of each client or agent, host and rule has a line at once. The repetitions are
// counted, and their number has a line at most once a minute. Hosts that push back, and hosts whose robots.txt is
// unreachable, have such lines too. In the mode All, each request has a line.
//
// Observe never waits: a goroutine writes the lines, and lines that it has no time for are counted and dropped. The
// memory for clients, hosts and rules is bounded, however many there are.
package requestlog

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
)

// Mode says which requests have lines. The zero value is Off.
type Mode int32

const (
	Off     Mode = iota
	Refused      // requests that are refused, and hosts that push back or are unreachable
	All          // every request, and hosts that push back
)

// Pause is the state of a host that has pushed back.
type Pause struct {
	Until   time.Time // zero: the host is not paused
	Source  string    // retry-after or backoff
	Waiting int       // requests that wait for the host
}

// Options configure a Log.
type Options struct {
	// Logger gets the lines with the level info. With a level above that, a Log writes nothing.
	Logger *slog.Logger

	// Text gets the lines in columns, in place of the Logger, if it is not nil.
	Text io.Writer

	// Colour adds colours to the lines in Text.
	Colour bool

	// Width returns the number of columns at which lines in Text are cut; 0 is unlimited. If nil, lines are not cut.
	Width func() int

	// Mode is the first Mode; see SetMode.
	Mode Mode

	// Paused returns the state of a host after its response of 429 or 503. If nil, pauses have no lines.
	Paused func(host string) Pause
}

// A Log is safe for concurrent use. The caller must call Close.
type Log struct {
	options Options
	mode    atomic.Int32
	events  chan event
	dropped atomic.Int64
	quit    chan struct{}
	done    chan struct{}

	repeats repeats // of the goroutine that writes
}

// maxEvents is the number of lines that wait to be written.
const maxEvents = 1024

// New returns a Log.
func New(o Options) *Log {
	l := &Log{
		options: o, events: make(chan event, maxEvents), quit: make(chan struct{}), done: make(chan struct{}),
		repeats: newRepeats(),
	}
	l.SetMode(o.Mode)
	go l.run()
	return l
}

// SetMode changes which requests have lines, from the next one on.
func (l *Log) SetMode(m Mode) { l.mode.Store(int32(m)) }

// Observe writes the lines for a request that has ended. It does not keep r.
func (l *Log) Observe(r *audit.Record) {
	mode := Mode(l.mode.Load())
	if mode == Off || r.Via == audit.Robots {
		return
	}
	if pushedBack(r) {
		l.send(newEvent(r, paused))
	}
	switch kind := kindOf(r); {
	case mode == All:
		l.send(newEvent(r, access))
	case kind != "":
		l.send(newEvent(r, kind))
	}
}

func (l *Log) send(e event) {
	select {
	case l.events <- e:
	default:
		l.dropped.Add(1)
	}
}

// pushedBack reports whether the origin answered r with 429 or 503.
func pushedBack(r *audit.Record) bool {
	switch r.Decision {
	case policy.Deny, policy.Throttle, policy.Error:
		return false // the answer is the proxy's
	}
	return !r.SentAt.IsZero() && (r.Status == http.StatusTooManyRequests || r.Status == http.StatusServiceUnavailable)
}

// closeWithin bounds Close if the lines cannot be written, as on a terminal that is stopped.
const closeWithin = time.Second

var errStuck = errors.New("the last lines about requests could not be written to the log")

// Close writes the pending lines and the counts. Records of later calls of Observe are dropped.
func (l *Log) Close() error {
	close(l.quit)
	select {
	case <-l.done:
		return nil
	case <-time.After(closeWithin):
		return errStuck
	}
}

// run writes all lines.
func (l *Log) run() {
	defer close(l.done)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case e := <-l.events:
			l.take(e)
		case now := <-tick.C:
			l.writeDue(now, false)
		case <-l.quit:
			l.finish()
			return
		}
	}
}

func (l *Log) finish() {
	for {
		select {
		case e := <-l.events:
			l.take(e)
		default:
			l.writeDue(time.Now(), true)
			return
		}
	}
}

// take writes the line of e, or counts it.
func (l *Log) take(e event) {
	if e.kind == paused && !l.look(&e) {
		return
	}
	if e.kind == access || l.repeats.isNew(e) {
		l.write(e)
	}
}

// look adds to e how long its host is paused. It returns false if the host is not paused.
func (l *Log) look(e *event) bool {
	if l.options.Paused == nil {
		return false
	}
	e.pause = l.options.Paused(e.host)
	return e.pause.Until.After(e.time)
}

// writeDue writes the counts that are due, and all of them at the end.
func (l *Log) writeDue(now time.Time, end bool) {
	for _, e := range l.repeats.due(now, end) {
		l.write(e)
	}
	if n := l.dropped.Swap(0); n > 0 {
		l.write(event{time: now, kind: dropped, more: n})
	}
}

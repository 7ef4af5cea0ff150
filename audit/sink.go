package audit

import (
	"context"
	"errors"
	"time"
)

const (
	gatherFor    = 20 * time.Millisecond // time for which a record waits for others, and between the beginnings of batches
	maxBatch     = 1000                  // complete records in a write
	retryEvery   = time.Second           // after a failed write
	writeTimeout = 5 * time.Second
)

// sink writes the records of a Recorder to one place, in one goroutine. Each has its own progress, so that one that
// fails does not delay another.
type sink struct {
	recorder *Recorder
	name     string // for messages
	write    func(ctx context.Context, batch []Entry) error

	// Recorder.mu guards these.
	young   queue     // records that have not ended and are not written as open; only the Store has these
	done    []*entry  // complete records to write
	since   time.Time // when the first of done was added
	began   time.Time // the last batch
	next    *commit   // of the batch that is gathered; nil if nothing waits for it
	idle    bool      // run waits for a record
	failing bool      // since the last write
	waiting int       // complete records that are not written
	batches int64

	// Only run uses these.
	current  *commit // of the batch that is written; nil if nothing waits for it
	pending  []*entry
	batch    []Entry
	deadline time.Time // of retries; read after quit is closed

	wake   chan struct{} // signals that a batch may be due
	reopen chan reopening
	quit   chan struct{} // closed by close
	over   chan struct{} // closed by run
}

// reopening asks run to call swap between two batches.
type reopening struct {
	swap func() error
	done chan error
}

func newSink(r *Recorder, name string, write func(context.Context, []Entry) error) *sink {
	return &sink{
		recorder: r, name: name, write: write, wake: make(chan struct{}, 1), reopen: make(chan reopening),
		quit: make(chan struct{}), over: make(chan struct{}),
	}
}

// add appends a complete record. The caller holds Recorder.mu.
func (s *sink) add(e *entry) {
	s.done = append(s.done, e)
	s.waiting++
	switch len(s.done) {
	case 1:
		s.since = time.Now()
		s.signal()
	case maxBatch:
		s.signal()
	}
}

// begin appends a record that has not ended. The caller holds Recorder.mu.
func (s *sink) begin(e *entry) {
	e.listed = true
	s.young.push(e)
	if s.idle {
		s.signal()
	}
}

// commitSoon returns the commit of the batch that is gathered, which becomes due now. The caller holds Recorder.mu.
func (s *sink) commitSoon() *commit {
	if s.next == nil {
		s.next = &commit{done: make(chan struct{})}
		s.signal()
	}
	return s.next
}

// signal makes run look when the next batch is due.
func (s *sink) signal() {
	s.idle = false
	select {
	case s.wake <- struct{}{}:
	default: // already signaled
	}
}

// run writes all batches, until close.
func (s *sink) run() {
	defer close(s.over)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var due <-chan time.Time // blocks while nothing waits
		if d, ok := s.dueIn(); ok {
			timer.Reset(d)
			due = timer.C
		}
		select {
		case <-due:
			if !s.flush() {
				return
			}
		case <-s.wake:
		case r := <-s.reopen:
			if !s.flush() {
				return
			}
			r.done <- r.swap()
		case <-s.quit:
			for s.flush() && s.isBehind() {
			}
			return
		}
	}
}

// dueIn returns the time until the next batch is due. It reports false if nothing waits.
func (s *sink) dueIn() (time.Duration, bool) {
	s.recorder.mu.Lock()
	defer s.recorder.mu.Unlock()
	first := s.firstYoung()
	switch {
	case s.next != nil || len(s.done) >= maxBatch:
		return 0, true
	case first == nil && len(s.done) == 0:
		s.idle = true
		return 0, false
	}
	from := s.since
	if first != nil && (len(s.done) == 0 || first.began.Before(from)) {
		from = first.began
	}
	if s.began.After(from) {
		from = s.began // else each record of a slow request would be a batch
	}
	return time.Until(from.Add(gatherFor)), true
}

// firstYoung returns the oldest record that has not ended and is not written as open, or nil.
func (s *sink) firstYoung() *entry {
	for {
		e := s.young.first()
		if e == nil || !e.ended {
			return e
		}
		s.dropYoung()
	}
}

// dropYoung removes the first of young.
func (s *sink) dropYoung() {
	e := s.young.pop()
	e.listed = false
	s.recorder.release(e)
}

// isBehind reports whether complete records wait to be taken.
func (s *sink) isBehind() bool {
	s.recorder.mu.Lock()
	defer s.recorder.mu.Unlock()
	return len(s.done) > 0
}

// flush writes the records that are due. It reports false if it gave up because of close.
func (s *sink) flush() bool {
	s.take()
	for rest := s.pending; len(s.batch)+len(rest) > 0; {
		n := min(len(rest), maxBatch)
		for _, e := range rest[:n] {
			s.batch = append(s.batch, s.entry(e))
		}
		if !s.writeBatch() {
			return false
		}
		s.wrote(rest[:n])
		rest = rest[n:]
		clear(s.batch)
		s.batch = s.batch[:0]
	}
	s.current.resolve(true)
	clear(s.pending)
	return true
}

// take takes the complete records, and into the batch copies of those that are due as open.
func (s *sink) take() {
	s.recorder.mu.Lock()
	defer s.recorder.mu.Unlock()
	s.current, s.next = s.next, nil
	s.pending, s.done = s.done, s.pending[:0]
	s.began = time.Now()
	due := s.began.Add(-gatherFor)
	for e := s.firstYoung(); e != nil && (s.current != nil || !e.began.After(due)); e = s.firstYoung() {
		open := Entry{Record: e.record, Open: true}
		open.Evidence, e.evidence = e.evidence, Evidence{} // a tunnel would hold it for hours
		s.batch = append(s.batch, open)
		s.dropYoung()
	}
}

// entry returns the Entry of a complete record. Only the Store needs its evidence, and may read it here.
func (s *sink) entry(e *entry) Entry {
	complete := Entry{Record: e.record}
	if s == s.recorder.store {
		complete.Evidence = e.evidence
	}
	return complete
}

// writeBatch writes s.batch. It retries until it succeeds, and reports false if it gave up because of close.
func (s *sink) writeBatch() bool {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
		err := s.write(ctx, s.batch)
		cancel()
		if err == nil {
			return true
		}
		s.fail(err)
		if !s.pause() {
			return false
		}
	}
}

// fail refuses the requests that wait for a commit, and reports the first error.
func (s *sink) fail(err error) {
	if s.setFailing() {
		s.recorder.options.Logger.Error("records cannot be written; they wait in memory", "to", s.name, "err", err)
	}
}

func (s *sink) setFailing() (first bool) {
	s.recorder.mu.Lock()
	defer s.recorder.mu.Unlock()
	first, s.failing = !s.failing, true
	s.current.resolve(false)
	s.next.resolve(false)
	s.current, s.next = nil, nil
	return first
}

// wrote notes that a batch with these complete records is written, and reports the first one after errors.
func (s *sink) wrote(complete []*entry) {
	if waiting, recovered := s.setWritten(complete); recovered {
		s.recorder.options.Logger.Info("records are written again", "to", s.name, "waiting", waiting)
	}
}

func (s *sink) setWritten(complete []*entry) (waiting int, recovered bool) {
	s.recorder.mu.Lock()
	defer s.recorder.mu.Unlock()
	s.batches++
	s.waiting -= len(complete)
	s.recorder.wrote(s, complete)
	recovered, s.failing = s.failing, false
	return s.waiting, recovered
}

// pause waits before a write is retried. It reports false if there is no time for that.
func (s *sink) pause() bool {
	select {
	case <-time.After(retryEvery):
		return true
	case <-s.quit:
	}
	left := time.Until(s.deadline)
	time.Sleep(min(left, retryEvery/10))
	return left > 0
}

// swapLines calls swap between two batches. It waits while records cannot be written, at most until close.
func (s *sink) swapLines(swap func() error) error {
	done := make(chan error, 1)
	select {
	case s.reopen <- reopening{swap, done}:
	case <-s.over:
	}
	select {
	case err := <-done:
		return err
	case <-s.over:
		return errors.New("audit: the records are closed")
	}
}

// close makes run write what waits, and end. It retries failed writes until the deadline.
func (s *sink) close(deadline time.Time) {
	s.deadline = deadline
	close(s.quit)
}

// wait waits until run has ended. It reports false if a write ignores the end of its context.
func (s *sink) wait() bool {
	select {
	case <-s.over:
		return true
	case <-time.After(time.Until(s.deadline) + maxCommit):
		return false
	}
}

// commit is the end of a write that requests wait for.
type commit struct {
	done chan struct{}
	ok   bool // valid after done is closed
}

// resolve ends the wait. It does nothing if c is nil.
func (c *commit) resolve(ok bool) {
	if c != nil {
		c.ok = ok
		close(c.done)
	}
}

// wait reports whether the records of the batch are committed. It reports true too if ctx ends.
func (c *commit) wait(ctx context.Context) bool {
	timeout := time.NewTimer(maxCommit)
	defer timeout.Stop()
	select {
	case <-c.done:
		return c.ok
	case <-ctx.Done():
		return true
	case <-timeout.C:
		return false
	}
}

// queue is a list of entries in the order of their begin.
type queue struct {
	entries []*entry
	head    int
}

func (q *queue) push(e *entry) {
	if q.head > 0 && len(q.entries) == cap(q.entries) {
		n := copy(q.entries, q.entries[q.head:])
		clear(q.entries[n:])
		q.entries, q.head = q.entries[:n], 0
	}
	q.entries = append(q.entries, e)
}

// first returns the oldest entry, or nil.
func (q *queue) first() *entry {
	if q.head == len(q.entries) {
		return nil
	}
	return q.entries[q.head]
}

// pop removes the oldest entry, which must exist, and returns it.
func (q *queue) pop() *entry {
	e := q.entries[q.head]
	q.entries[q.head] = nil
	q.head++
	return e
}

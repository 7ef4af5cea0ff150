package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
)

// ErrUnavailable is returned by Begin while records cannot be written and no more of them may wait.
var ErrUnavailable = errors.New("audit: records cannot be written and the buffer is full")

// Durability says when Begin returns.
type Durability string

const (
	// Grouped lets Begin return at once. If the process is killed, decisions of the last 50 ms may be missing.
	Grouped Durability = "grouped"

	// Strict lets Begin return after the decision is committed to the Store.
	Strict Durability = "strict"
)

// RecorderOptions configure a Recorder.
type RecorderOptions struct {
	Store      Store         // keeps all records; may be nil. The caller closes it after the Recorder.
	Lines      *Lines        // also get all complete records; may be nil. Close closes them.
	Durability Durability    // if empty, Grouped. Without Store it is ignored.
	Buffer     int           // maximum number of records begun or unwritten at once; if zero, 100,000
	Continue   bool          // if the buffer is full, go on unrecorded, counted as lost; if false, Begin refuses
	Grace      time.Duration // for how long Close retries failed writes; if zero, it does not
	Logger     *slog.Logger  // receives failures and recoveries of writing; if nil, nothing is logged
}

const (
	// maxEvidence bounds the bodies of robots.txt files that unwritten records hold, in bytes. A request is small; the
	// file that decided may have 64 MiB.
	maxEvidence = 64 << 20

	// maxCommit bounds the wait for a commit in Strict. A write takes at most writeTimeout, so that this is reached only
	// if the Store ignores the end of its context.
	maxCommit = 2 * writeTimeout
)

// Recorder writes records to a Store, to Lines, or to both, in batches. If a write fails, records wait in memory, up to
// the buffer, and the write is retried every second. Its methods may be called concurrently.
type Recorder struct {
	options RecorderOptions
	store   *sink // nil if there is none
	lines   *sink // nil if there are none
	sinks   []*sink

	mu       sync.Mutex // guards the fields below, and those of the sinks and entries that say so
	begun    map[ID]*entry
	free     []*entry // to use again
	held     int      // begun, and not yet written by each sink
	evidence evidence
	strict   bool
	proceed  bool // see RecorderOptions.Continue
	closed   bool
	written  int64
	lost     int64
}

// entry is a record that was begun and is not yet written by each sink. Recorder.mu guards it until it has ended; then
// record and evidence do not change.
type entry struct {
	record    Record // without its evidence
	evidence  Evidence
	began     time.Time
	ended     bool
	unwritten int  // sinks that have not written the complete record
	listed    bool // in sink.young
}

// NewRecorder starts a Recorder. Without Store and Lines it keeps nothing.
func NewRecorder(o RecorderOptions) *Recorder {
	if o.Buffer == 0 {
		o.Buffer = 100_000
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Recorder{
		options: o, begun: make(map[ID]*entry), evidence: evidence{uses: make(map[*robots.Snapshot]int)},
		strict: o.Durability == Strict, proceed: o.Continue,
	}
	if o.Store != nil {
		r.store = newSink(r, "the store", o.Store.Write)
		r.sinks = append(r.sinks, r.store)
	}
	if o.Lines != nil {
		r.lines = newSink(r, o.Lines.options.Path, o.Lines.write)
		r.sinks = append(r.sinks, r.lines)
	}
	for _, s := range r.sinks {
		go s.run()
	}
	return r
}

// Begin records the decision about a request that is not yet sent or answered. It copies what it needs from rec, whose
// evidence the caller may then drop. If it returns nil, the caller must call End once. In Strict, it returns after the
// decision is committed, or when ctx ends: the caller must not send or answer the request after that. Otherwise it
// returns ErrUnavailable.
func (r *Recorder) Begin(ctx context.Context, rec *Record) error {
	for c := r.room(); c != nil && c.wait(ctx) && ctx.Err() == nil; {
		c = r.room()
	}
	c, err := r.begin(rec, ctx.Err() == nil)
	if c == nil || c.wait(ctx) {
		return err
	}
	return r.withdraw(rec.ID)
}

// begin returns the commit to wait for; nil if Begin must not wait.
func (r *Recorder) begin(rec *Record, mayWait bool) (*commit, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	strict := r.strict && r.store != nil
	switch {
	case r.closed:
		return nil, ErrUnavailable
	case len(r.sinks) == 0:
		return nil, nil
	case !r.proceed && (r.isFull() || strict && r.store.failing):
		return nil, ErrUnavailable
	case r.isFull():
		return nil, nil // End counts it as lost, or finds room
	}
	e := r.newEntry(rec)
	r.begun[rec.ID] = e
	if r.store == nil {
		return nil, nil
	}
	r.store.begin(e)
	if strict && mayWait && !r.store.failing {
		return r.store.commitSoon(), nil
	}
	return nil, nil
}

// room returns the commit after which there is room for a record. It returns nil if there is room, or if none is to be
// expected: a sink fails, or the requests have not ended.
func (r *Recorder) room() *commit {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || !r.isFull() {
		return nil
	}
	var slowest *sink
	for _, s := range r.sinks {
		if s.failing {
			return nil
		}
		if s.waiting > 0 && (slowest == nil || s.waiting > slowest.waiting) {
			slowest = s
		}
	}
	if slowest == nil {
		return nil
	}
	return slowest.commitSoon()
}

// isFull reports whether no more records may wait.
func (r *Recorder) isFull() bool {
	return r.held >= r.options.Buffer || r.evidence.bytes > maxEvidence
}

// newEntry returns an entry with a copy of rec.
func (r *Recorder) newEntry(rec *Record) *entry {
	var e *entry
	if last := len(r.free) - 1; last >= 0 {
		e, r.free = r.free[last], r.free[:last]
	} else {
		e = &entry{}
	}
	r.set(e, rec)
	e.began, e.unwritten = time.Now(), len(r.sinks)
	r.held++
	return e
}

// set copies rec. Without evidence, that of Begin counts.
func (r *Recorder) set(e *entry, rec *Record) {
	e.record = *rec
	e.record.Evidence = Evidence{}
	if r.store != nil && rec.Evidence != (Evidence{}) {
		e.evidence = rec.Evidence
	}
}

// withdraw ends a record whose decision could not be committed. It is written as it was answered, when records can be
// written again: the failed write may have left it in the Store.
func (r *Recorder) withdraw(id ID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.begun[id]
	if r.proceed || e == nil {
		return nil
	}
	rec := &e.record
	rec.Decision, rec.Reason, rec.Error = policy.Error, policy.ReasonAuditUnavailable, ErrUnavailable.Error()
	rec.EndedAt = time.Now()
	r.finish(id, e)
	return ErrUnavailable
}

// End records that the request has ended. rec is complete. In Strict, if the decision is not the one that was begun,
// End returns after it is committed, or cannot be.
func (r *Recorder) End(rec *Record) {
	if c := r.end(rec); c != nil {
		c.wait(context.Background())
	}
}

func (r *Recorder) end(rec *Record) *commit {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.sinks) == 0 {
		return nil
	}
	e := r.begun[rec.ID]
	if e == nil && (r.closed || r.isFull()) {
		r.lost++
		return nil
	}
	if e == nil {
		e = r.newEntry(rec)
	}
	changed := e.record.Decision != rec.Decision || e.record.Reason != rec.Reason
	r.set(e, rec)
	r.finish(rec.ID, e)
	if r.strict && changed && r.store != nil && !r.store.failing {
		return r.store.commitSoon()
	}
	return nil
}

// finish gives e, which is complete, to the sinks.
func (r *Recorder) finish(id ID, e *entry) {
	delete(r.begun, id)
	e.ended = true
	r.evidence.add(e.evidence.Robots)
	for _, s := range r.sinks {
		s.add(e)
	}
}

// wrote notes that s has written complete records. The caller holds r.mu.
func (r *Recorder) wrote(s *sink, complete []*entry) {
	for _, e := range complete {
		if s == r.store {
			r.evidence.remove(e.evidence.Robots)
			e.evidence = Evidence{}
		}
		if e.unwritten--; e.unwritten == 0 {
			r.held--
			r.written++
			r.release(e)
		}
	}
}

// release keeps e for another record, if nothing needs it.
func (r *Recorder) release(e *entry) {
	if e.unwritten > 0 || e.listed || len(r.free) >= maxBatch {
		return
	}
	*e = entry{}
	r.free = append(r.free, e)
}

// SetContinue replaces RecorderOptions.Continue.
func (r *Recorder) SetContinue(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.proceed = on
}

// RecorderStats are the numbers of a Recorder since its start.
type RecorderStats struct {
	Waiting int   // complete, and not yet written by each sink
	Written int64 // by each sink
	Batches int64 // written to the Store and to the Lines
	Lost    int64 // dropped, of requests that went on unrecorded
}

// Stats returns the current numbers.
func (r *Recorder) Stats() RecorderStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := RecorderStats{Waiting: r.held - len(r.begun), Written: r.written, Lost: r.lost}
	for _, sink := range r.sinks {
		s.Batches += sink.batches
	}
	return s
}

// Reopen continues the Lines in a new file of the same path, after the old one was renamed. The records that have ended
// are written to the old file first, so that no record is lost or torn. If the new file cannot be opened, the old one
// continues. While the old one cannot be written, Reopen waits, at most until Close. It does nothing without Lines.
func (r *Recorder) Reopen() error {
	if r.lines == nil {
		return nil
	}
	out, err := openLines(r.options.Lines.options.Path)
	if err != nil {
		return err
	}
	swapped := false
	err = r.lines.swapLines(func() error {
		swapped = true
		return r.options.Lines.swap(out)
	})
	if !swapped {
		err = errors.Join(err, out.Close())
	}
	return err
}

// Close writes the records that wait, and closes the Lines. It returns an error if records were begun but not written.
func (r *Recorder) Close() error {
	if !r.refuseAll() {
		return nil
	}
	for _, s := range r.sinks {
		s.close(time.Now().Add(r.options.Grace))
	}
	var errs []error
	for _, s := range r.sinks {
		if s.wait() && s == r.lines {
			errs = append(errs, r.options.Lines.Close())
		}
		errs = append(errs, r.unwritten(s))
	}
	return errors.Join(errs...)
}

// refuseAll makes Begin refuse all records from now on. It reports whether this is the first call.
func (r *Recorder) refuseAll() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := !r.closed
	r.closed = true
	return first
}

// unwritten returns an error that counts the records which s has not written.
func (r *Recorder) unwritten(s *sink) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.begun) + s.waiting; n > 0 {
		return fmt.Errorf("audit: %d records could not be written to %s", n, s.name)
	}
	return nil
}

// evidence counts the bytes of the bodies that complete records need.
type evidence struct {
	uses  map[*robots.Snapshot]int
	bytes int
}

func (v *evidence) add(s *robots.Snapshot) {
	if s == nil {
		return
	}
	if v.uses[s]++; v.uses[s] == 1 {
		v.bytes += len(s.Body)
	}
}

func (v *evidence) remove(s *robots.Snapshot) {
	if s == nil {
		return
	}
	if v.uses[s]--; v.uses[s] == 0 {
		delete(v.uses, s)
		v.bytes -= len(s.Body)
	}
}

package audit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
)

// kept is a Store in memory.
type kept struct {
	Store

	mu     sync.Mutex
	fault  error // of each write until it is nil
	hang   bool  // until the end of the context
	took   time.Duration
	writes [][]Entry
}

func (k *kept) Write(ctx context.Context, entries []Entry) error {
	time.Sleep(k.took)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.hang {
		k.mu.Unlock()
		<-ctx.Done()
		k.mu.Lock()
		return ctx.Err()
	}
	if k.fault != nil {
		return k.fault
	}
	k.writes = append(k.writes, append([]Entry(nil), entries...))
	return nil
}

func (k *kept) set(fault error, hang bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fault, k.hang = fault, hang
}

func (k *kept) all() [][]Entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.writes
}

// decisions returns the number of records that were written, as open or complete.
func (k *kept) decisions() int {
	ids := make(map[ID]bool)
	for _, entries := range k.all() {
		for _, e := range entries {
			ids[e.ID] = true
		}
	}
	return len(ids)
}

// text describes the writes: "1+ 2 | 1" are two, of which the first had record 1 as open.
func (k *kept) text() string {
	var writes []string
	for _, entries := range k.all() {
		var ids []string
		for _, e := range entries {
			text := fmt.Sprint(int64(e.ID))
			if e.Open {
				text += "+"
			}
			ids = append(ids, text)
		}
		writes = append(writes, strings.Join(ids, " "))
	}
	return strings.Join(writes, " | ")
}

var errDisk = errors.New("no space left on device")

func allowed(id ID) *Record { return &Record{ID: id, Decision: policy.Allow} }

func begin(t *testing.T, r *Recorder, rec *Record) {
	t.Helper()
	if err := r.Begin(t.Context(), rec); err != nil {
		t.Fatalf("Begin of %d: %v", int64(rec.ID), err)
	}
}

// bubble runs test with a Recorder whose clock is that of the test.
func bubble(t *testing.T, o RecorderOptions, test func(t *testing.T, r *Recorder, k *kept)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := &kept{}
		o.Store = k
		r := NewRecorder(o)
		defer r.Close()
		test(t, r, k)
	})
}

// A decision is in the Store after 20 ms, if writes take no time: as open if its request has not ended.
func TestRecorderWritesOpenRecords(t *testing.T) {
	bubble(t, RecorderOptions{}, func(t *testing.T, r *Recorder, k *kept) {
		slow, quick := allowed(1), allowed(2)
		begin(t, r, slow)
		slow.Bytes = 7 // the request goes on changing its record
		time.Sleep(10 * time.Millisecond)
		begin(t, r, quick)
		r.End(quick)
		time.Sleep(8 * time.Millisecond)
		if got := k.text(); got != "" {
			t.Errorf("after 18 ms the writes are %q, want none", got)
		}
		time.Sleep(4 * time.Millisecond)
		if got := k.text(); got != "1+ 2" {
			t.Errorf("after 22 ms the writes are %q, want the first as open, and the one that ended", got)
		}
		if got := k.all()[0][0].Bytes; got != 0 {
			t.Errorf("the open record has %d bytes, want the copy of its begin", got)
		}
		time.Sleep(time.Second)
		r.End(slow)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if got := k.text(); got != "1+ 2 | 1" || k.all()[1][0].Bytes != 7 {
			t.Errorf("the writes are %q, want the complete record once, at last", got)
		}
		if got, want := r.Stats(), (RecorderStats{Written: 2, Batches: 2}); got != want {
			t.Errorf("stats %+v, want %+v", got, want)
		}
	})
}

// Requests that begin one after another and take long are written in batches too. No decision waits longer than 40 ms.
func TestRecorderGathersOpenRecords(t *testing.T) {
	bubble(t, RecorderOptions{}, func(t *testing.T, r *Recorder, k *kept) {
		var requests sync.WaitGroup
		began := time.Now()
		for i := range 1000 {
			requests.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				rec := allowed(ID(i + 1))
				begin(t, r, rec)
				time.Sleep(200 * time.Millisecond)
				r.End(rec)
			})
		}
		for range 24 {
			time.Sleep(50 * time.Millisecond)
			age := time.Since(began) - 40*time.Millisecond
			if got, want := k.decisions(), min(1000, int(age/time.Millisecond)); got < want {
				t.Errorf("after %v the store has %d decisions, want %d", time.Since(began), got, want)
			}
		}
		requests.Wait()
		if got, most := r.Stats().Batches, int64(time.Since(began)/gatherFor); got > most {
			t.Errorf("%d batches in %v, want %d at most", got, time.Since(began), most)
		}
	})
}

func TestRecorderGathers(t *testing.T) {
	bubble(t, RecorderOptions{}, func(t *testing.T, r *Recorder, k *kept) {
		for i := range 2500 {
			rec := allowed(ID(i + 1))
			begin(t, r, rec)
			r.End(rec)
		}
		time.Sleep(50 * time.Millisecond)
		var sizes []int
		for _, w := range k.all() {
			sizes = append(sizes, len(w))
		}
		if total := r.Stats().Written; total != 2500 || len(sizes) > 5 {
			t.Errorf("%d records in batches of %v, want 2500 in a few", total, sizes)
		}
	})
}

// A small buffer refuses nothing while records can be written.
func TestSmallBuffer(t *testing.T) {
	lines := newLines(LinesOptions{Path: "disk"}, &failing{})
	bubble(t, RecorderOptions{Buffer: 2, Lines: lines}, func(t *testing.T, r *Recorder, k *kept) {
		k.took = time.Millisecond
		for i := range 100 {
			rec := allowed(ID(i + 1))
			begin(t, r, rec)
			r.End(rec)
		}
		begin(t, r, allowed(101))
		begin(t, r, allowed(102))
		if err := r.Begin(t.Context(), allowed(103)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("Begin = %v, want ErrUnavailable while two requests have not ended", err)
		}
		r.End(allowed(101))
		r.End(allowed(102))
	})
}

// In Strict, Begin returns after the commit, and the requests that come meanwhile share the next one.
func TestStrict(t *testing.T) {
	bubble(t, RecorderOptions{Durability: Strict}, func(t *testing.T, r *Recorder, k *kept) {
		k.took = 3 * time.Millisecond
		var group sync.WaitGroup
		for i := range 20 {
			group.Go(func() {
				began := time.Now()
				begin(t, r, allowed(ID(i+1)))
				if took := time.Since(began); took != 3*time.Millisecond && took != 6*time.Millisecond {
					t.Errorf("Begin took %v, want a commit or two", took)
				}
			})
		}
		group.Wait()
		if n := len(k.all()); n > 2 {
			t.Errorf("%d commits of 20 requests at once: %s", n, k.text())
		}
		refused := allowed(1)
		refused.Decision, refused.Reason = policy.Error, policy.ReasonUpstream
		r.End(refused)
		if last := k.all()[len(k.all())-1]; last[0].ID != 1 || last[0].Reason != policy.ReasonUpstream {
			t.Errorf("the changed decision is not committed at its end: %s", k.text())
		}
		for i := range 19 {
			r.End(allowed(ID(i + 2)))
		}
	})
}

// In Strict, a request is refused as soon as its decision cannot be committed, and what was answered is recorded later.
func TestStrictFails(t *testing.T) {
	bubble(t, RecorderOptions{Durability: Strict}, func(t *testing.T, r *Recorder, k *kept) {
		k.set(errDisk, false)
		for i := range 3 {
			if err := r.Begin(t.Context(), allowed(ID(i+1))); !errors.Is(err, ErrUnavailable) {
				t.Errorf("Begin = %v, want ErrUnavailable", err)
			}
		}
		k.set(nil, false)
		time.Sleep(retryEvery + gatherFor)
		rec := allowed(4)
		begin(t, r, rec)
		r.End(rec)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if got := k.text(); got != "1+ | 1 | 4+ | 4" || k.all()[1][0].Reason != policy.ReasonAuditUnavailable {
			t.Errorf("the writes are %q, want the refused record, and the one that followed", got)
		}
	})
}

// In Strict with Continue, requests go on and their records wait.
func TestStrictContinues(t *testing.T) {
	bubble(t, RecorderOptions{Durability: Strict, Continue: true}, func(t *testing.T, r *Recorder, k *kept) {
		k.set(errDisk, false)
		for i := range 3 {
			rec := allowed(ID(i + 1))
			begin(t, r, rec)
			r.End(rec)
		}
		k.set(nil, false)
		time.Sleep(2 * retryEvery)
		if got := r.Stats(); got.Written != 3 || got.Lost != 0 {
			t.Errorf("stats %+v, want all three records", got)
		}
	})
}

// A client that leaves does not wait for the commit, and its record is kept.
func TestStrictClientLeaves(t *testing.T) {
	bubble(t, RecorderOptions{Durability: Strict}, func(t *testing.T, r *Recorder, k *kept) {
		k.took = time.Second
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		rec := allowed(1)
		if err := r.Begin(ctx, rec); err != nil {
			t.Error(err)
		}
		rec.Decision, rec.Reason = policy.Error, policy.ReasonClientLeft
		r.End(rec)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if last := k.all()[len(k.all())-1]; last[0].Open || last[0].Reason != policy.ReasonClientLeft {
			t.Errorf("the writes are %s", k.text())
		}
	})
}

// A Store that hangs is given up after a time, and does not delay the Lines.
func TestHangingStore(t *testing.T) {
	disk := &failing{}
	lines := newLines(LinesOptions{Path: "disk"}, disk)
	bubble(t, RecorderOptions{Durability: Strict, Lines: lines}, func(t *testing.T, r *Recorder, k *kept) {
		first := allowed(1)
		begin(t, r, first)
		k.set(nil, true)
		began := time.Now()
		if err := r.Begin(t.Context(), allowed(2)); !errors.Is(err, ErrUnavailable) || time.Since(began) != writeTimeout {
			t.Errorf("Begin = %v after %v, want ErrUnavailable after %v", err, time.Since(began), writeTimeout)
		}
		r.End(first)
		time.Sleep(gatherFor)
		synctest.Wait()
		if got := strings.Count(disk.got.String(), "\n"); got != 2 {
			t.Errorf("%d lines while the store hangs, want 2", got)
		}
		k.set(nil, false)
	})
}

// Lines that cannot be written do not stop the Store. The slower one fills the buffer.
func TestFailingLines(t *testing.T) {
	lines := newLines(LinesOptions{Path: "disk"}, &failing{full: true})
	bubble(t, RecorderOptions{Buffer: 3, Lines: lines}, func(t *testing.T, r *Recorder, k *kept) {
		for i := range 3 {
			rec := allowed(ID(i + 1))
			begin(t, r, rec)
			r.End(rec)
		}
		time.Sleep(gatherFor)
		synctest.Wait()
		if got := k.text(); got != "1 2 3" {
			t.Errorf("the store has %q", got)
		}
		if err := r.Begin(t.Context(), allowed(4)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("Begin = %v, want ErrUnavailable", err)
		}
		if err := r.Close(); err == nil || !strings.Contains(err.Error(), "3 records could not be written to disk") {
			t.Errorf("Close = %v, want an error that names the lines", err)
		}
	})
}

// Close retries for its grace.
func TestCloseHasGrace(t *testing.T) {
	bubble(t, RecorderOptions{Grace: 5 * time.Second}, func(t *testing.T, r *Recorder, k *kept) {
		k.set(errDisk, false)
		rec := allowed(1)
		begin(t, r, rec)
		r.End(rec)
		time.AfterFunc(3*time.Second, func() { k.set(nil, false) })
		if err := r.Close(); err != nil || k.text() != "1" {
			t.Errorf("Close = %v, and the store has %q", err, k.text())
		}
	})
}

// The bodies that unwritten records hold are bounded, each counted once.
func TestEvidenceIsBounded(t *testing.T) {
	bubble(t, RecorderOptions{}, func(t *testing.T, r *Recorder, k *kept) {
		k.set(errDisk, false)
		id := ID(0)
		complete := func(snap *robots.Snapshot) error {
			id++
			rec := allowed(id)
			rec.Evidence.Robots = snap
			err := r.Begin(t.Context(), rec)
			if err == nil {
				r.End(rec)
			}
			return err
		}
		body := make([]byte, maxEvidence/4)
		same := &robots.Snapshot{Answer: robots.Answer{Body: body}}
		for range 100 {
			if err := complete(same); err != nil {
				t.Fatal(err)
			}
		}
		for range 4 {
			if err := complete(&robots.Snapshot{Answer: robots.Answer{Body: body}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := complete(nil); !errors.Is(err, ErrUnavailable) {
			t.Errorf("Begin beyond the bound = %v, want ErrUnavailable", err)
		}
		k.set(nil, false)
		time.Sleep(2 * retryEvery)
		if err := complete(same); err != nil {
			t.Errorf("Begin after the write = %v", err)
		}
		if err := r.Close(); err != nil || r.evidence.bytes != 0 || len(r.evidence.uses) != 0 {
			t.Errorf("%v; evidence that nothing needs is counted: %d bytes of %d", err, r.evidence.bytes, len(r.evidence.uses))
		}
	})
}

// A Recorder without a place for records accepts them.
func TestRecorderWithoutSinks(t *testing.T) {
	r := NewRecorder(RecorderOptions{Durability: Strict, Buffer: 1})
	for i := range 3 {
		rec := allowed(ID(i + 1))
		begin(t, r, rec)
		r.End(rec)
	}
	if err := errors.Join(r.Reopen(), r.Close()); err != nil || r.Stats() != (RecorderStats{}) {
		t.Errorf("%v, %+v", err, r.Stats())
	}
}

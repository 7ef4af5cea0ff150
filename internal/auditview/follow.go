package auditview

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
)

// FollowedRows is the usual number of records before those that Follow waits for.
const FollowedRows = 10

// Records are written at the end of the request, up to lateness after their arrival if the request waits for its turn.
// So Follow reads the last seconds often, and the time of lateness now and then.
const (
	pollEvery = 250 * time.Millisecond
	pollBack  = 5 * time.Second
	scanEvery = 5 * time.Second  // or 20 times the time that it takes, if that is more
	lateness  = 12 * time.Minute // more than the longest wait (pacing.max_wait_cap)
)

// follower writes records at their ends, each once.
type follower struct {
	out     *Records
	records audit.Reader
	filter  audit.Filter
	written map[audit.ID]bool // of the last lateness
	open    map[audit.ID]bool // have not ended
}

// Follow writes the last f.Limit records of f, and then each that ends, until ctx is done.
func Follow(ctx context.Context, out *Records, records audit.Reader, f audit.Filter) error {
	w := &follower{out: out, records: records, filter: f, written: make(map[audit.ID]bool), open: make(map[audit.ID]bool)}
	begin := time.Now()
	if err := w.last(ctx, f); err != nil {
		return ended(ctx, err)
	}
	w.filter.Limit, w.filter.Newest = 0, false
	if err := w.read(ctx, begin.Add(-lateness), func(r *audit.Record) bool { return r.EndedAt.Before(begin) }); err != nil {
		return ended(ctx, err)
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	next := time.Now().Add(scanEvery)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := time.Now()
		err := w.read(ctx, now.Add(-pollBack), nil)
		if err == nil && now.After(next) {
			err = w.scan(ctx, now)
			next = time.Now().Add(max(scanEvery, 20*time.Since(now)))
		}
		if err = errors.Join(err, out.Flush()); err != nil {
			return ended(ctx, err)
		}
	}
}

// ended returns err unless it is the end of ctx.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// last writes the last records that have ended, in order of arrival.
func (w *follower) last(ctx context.Context, f audit.Filter) error {
	f.Newest = true
	var rows []audit.Record
	if f.Limit > 0 {
		for r, err := range w.records.Records(ctx, f) {
			if err != nil {
				return err
			}
			rows = append(rows, *r)
		}
	}
	for _, r := range slices.Backward(rows) {
		if err := w.add(&r); err != nil {
			return err
		}
	}
	return w.out.Flush()
}

// read writes the records that arrived since a time and were not written before. It passes over those that skip
// selects.
func (w *follower) read(ctx context.Context, since time.Time, skip func(*audit.Record) bool) error {
	f := w.filter
	if since.After(f.Since) {
		f.Since = since
	}
	for r, err := range w.records.Records(ctx, f) {
		if err != nil {
			return err
		}
		if skip != nil && !r.EndedAt.IsZero() && skip(r) {
			w.written[r.ID] = true
			continue
		}
		if err := w.add(r); err != nil {
			return err
		}
	}
	return nil
}

// add writes r if it has ended and was not written.
func (w *follower) add(r *audit.Record) error {
	switch {
	case w.written[r.ID]:
		return nil
	case r.EndedAt.IsZero():
		w.open[r.ID] = true
		return nil
	}
	w.written[r.ID] = true
	delete(w.open, r.ID)
	return w.out.Add(r)
}

// scan writes records that were late, and those of long requests. It forgets what is too old to be read again.
func (w *follower) scan(ctx context.Context, now time.Time) error {
	since := now.Add(-lateness)
	if err := w.read(ctx, since, nil); err != nil {
		return err
	}
	for id := range w.open {
		if !id.Time().Before(since) {
			continue
		}
		r, err := w.records.Record(ctx, id)
		switch {
		case errors.Is(err, audit.ErrNoRecord): // pruned
			delete(w.open, id)
		case err != nil:
			return err
		default:
			if err := w.add(r); err != nil {
				return err
			}
		}
	}
	for id := range w.written {
		if id.Time().Before(since.Add(-time.Minute)) {
			delete(w.written, id)
		}
	}
	return nil
}

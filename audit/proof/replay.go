package proof

import (
	"cmp"
	"context"
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/rules"
)

// ReplayOptions are the options of Replay.
type ReplayOptions struct {
	Progress func(records int64) // called now and then with the number of records so far; may be nil
}

// ReplayReport says whether the recorded decisions follow from the files and policies that are kept.
type ReplayReport struct {
	Records  int64 `json:"records"`
	Replayed int64 `json:"replayed"` // decisions that were made again
	Same     int64 `json:"same"`     // of these
	Unjudged int64 `json:"unjudged"` // requests that were answered or failed before a policy decided

	Missing map[MissingCause]int64 `json:"not_replayed"` // records that could not be replayed, by cause

	// Differences are the first 100,000 decisions that come out otherwise, in order. Differing counts all.
	Differences []ReplayDifference `json:"differences"`
	Differing   int64              `json:"differing"`

	// OtherRules are decisions of another version of the rules engine that come out otherwise: the program may have
	// changed, and not the record. Changed counts all.
	OtherRules []ReplayDifference `json:"other_rules"`
	Changed    int64              `json:"changed"`
}

// OK reports whether no decision comes out otherwise.
func (r *ReplayReport) OK() bool { return r.Differing == 0 }

// MissingCause says why a record could not be replayed.
type MissingCause string

const (
	QueryDropped  MissingCause = "query dropped by configuration"
	QueryHashed   MissingCause = "query hashed by configuration"
	TextMasked    MissingCause = "path, query, User-Agent or usage masked or cut"
	FileMissing   MissingCause = "robots.txt not kept"
	PolicyMissing MissingCause = "policy not kept"
)

// MissingCauses are all of them, in the order of their listing.
var MissingCauses = []MissingCause{QueryDropped, QueryHashed, TextMasked, FileMissing, PolicyMissing}

// ReplayDifference is a decision that comes out otherwise.
type ReplayDifference struct {
	ID           audit.ID  `json:"id"`
	Time         time.Time `json:"time"`
	Host         string    `json:"host"`
	Path         string    `json:"path"`
	Field        string    `json:"field"` // the first one that differs
	Recorded     string    `json:"recorded"`
	Replayed     string    `json:"replayed"`
	RulesVersion int       `json:"rules_version"` // of the record
}

// maxDifferences bounds ReplayReport.Differences and OtherRules.
const maxDifferences = 100_000

// batchSize is the number of records that a worker gets at once.
const batchSize = 256

// Replay decides every record that f selects once more, by the robots.txt and the policy that are kept for it, and
// compares the results. If f.Vias is empty, the proxy's own requests are replayed too. Its memory does not depend on
// the number of records.
func Replay(ctx context.Context, r audit.Reader, f audit.Filter, o ReplayOptions) (*ReplayReport, error) {
	if len(f.Vias) == 0 {
		f.Vias = []audit.Via{audit.Plain, audit.Intercepted, audit.Tunnel, audit.Robots}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	workers := make([]*replayer, runtime.GOMAXPROCS(0))
	var running sync.WaitGroup
	for i := range workers {
		w := newReplayer(r)
		workers[i] = w
		running.Go(func() {
			if err := w.run(ctx); err != nil {
				cancel(err)
			}
		})
	}
	err := distribute(ctx, r.Records(ctx, f), workers, o.Progress)
	for _, w := range workers {
		close(w.in)
	}
	running.Wait()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err != nil {
		return nil, err
	}
	return merged(workers), nil
}

// distribute gives each record to a worker. Those of one host go to one worker, so that a file is parsed once.
func distribute(ctx context.Context, records recordSeq, workers []*replayer, progress func(int64)) error {
	seed := maphash.MakeSeed()
	batches := make([][]audit.Record, len(workers))
	send := func(i int) {
		select {
		case workers[i].in <- batches[i]:
		case <-ctx.Done():
		}
		batches[i] = nil
	}
	var n int64
	for rec, err := range records {
		if err != nil {
			return err
		}
		i := int(maphash.String(seed, rec.Host) % uint64(len(workers)))
		batches[i] = append(batches[i], *rec)
		if len(batches[i]) == batchSize {
			send(i)
		}
		if n++; n%1000 == 0 {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if progress != nil {
				progress(n)
			}
		}
	}
	for i := range batches {
		send(i)
	}
	return nil
}

// merged returns the sum of the reports.
func merged(workers []*replayer) *ReplayReport {
	sum := &ReplayReport{Missing: map[MissingCause]int64{}, Differences: []ReplayDifference{}, OtherRules: []ReplayDifference{}}
	for _, w := range workers {
		r := &w.report
		sum.Records += r.Records
		sum.Replayed += r.Replayed
		sum.Same += r.Same
		sum.Unjudged += r.Unjudged
		sum.Differing += r.Differing
		sum.Changed += r.Changed
		for cause, n := range r.Missing {
			sum.Missing[cause] += n
		}
		sum.Differences = append(sum.Differences, r.Differences...)
		sum.OtherRules = append(sum.OtherRules, r.OtherRules...)
	}
	for _, list := range []*[]ReplayDifference{&sum.Differences, &sum.OtherRules} {
		slices.SortFunc(*list, func(a, b ReplayDifference) int { return cmp.Compare(a.ID, b.ID) })
		*list = (*list)[:min(len(*list), maxDifferences)]
	}
	return sum
}

// add adds a decision that comes out otherwise.
func (r *ReplayReport) add(d ReplayDifference) {
	list, n := &r.Differences, &r.Differing
	if d.RulesVersion != rules.Version {
		list, n = &r.OtherRules, &r.Changed
	}
	*n++
	if len(*list) < maxDifferences {
		*list = append(*list, d)
	}
}

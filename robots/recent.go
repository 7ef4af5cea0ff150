package robots

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/robotsproxy/robotsproxy/origin"
)

// recent holds the newest Snapshots, beside ristretto, which declines some that it expects to be of little use. Without
// recent, each request for such a host would read the Store, or fetch the file if there is no Store. A Snapshot that
// was used since its last turn to be removed gets another turn.
type recent struct {
	limit int64 // in bytes

	mu    sync.RWMutex // guards the fields below
	at    map[origin.Origin]*entry
	queue []*entry // the next to remove first
	bytes int64
}

type entry struct {
	snap *Snapshot
	size int64
	used atomic.Bool // since its last turn
}

// Limits of recent.
const (
	recentCount = 256
	recentBytes = 8 << 20
)

func newRecent(limit int64) recent {
	return recent{limit: limit, at: make(map[origin.Origin]*entry)}
}

func (r *recent) get(o origin.Origin) *Snapshot {
	r.mu.RLock()
	defer r.mu.RUnlock()
	e := r.at[o]
	if e == nil {
		return nil
	}
	e.used.Store(true)
	return e.snap
}

// add adds snap in place of the previous Snapshot of its origin. The newest Snapshot stays, however large it is.
func (r *recent) add(snap *Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(snap.Origin)
	e := &entry{snap: snap, size: snap.size()}
	r.at[snap.Origin] = e
	r.bytes += e.size
	r.shrink()
	r.queue = append(r.queue, e) // after shrink, which must not remove it
}

// clear removes all.
func (r *recent) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.at)
	r.queue, r.bytes = nil, 0
}

func (r *recent) remove(o origin.Origin) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(o)
}

func (r *recent) drop(o origin.Origin) {
	old := r.at[o]
	if old == nil {
		return
	}
	r.queue = slices.DeleteFunc(r.queue, func(e *entry) bool { return e == old })
	delete(r.at, o)
	r.bytes -= old.size
}

// shrink removes entries until the limits are met. Each gets at most one more turn, so it ends after two rounds.
func (r *recent) shrink() {
	for len(r.queue) > 0 && (len(r.queue) >= recentCount || r.bytes > r.limit) {
		e := r.queue[0]
		r.queue = slices.Delete(r.queue, 0, 1)
		if e.used.Swap(false) {
			r.queue = append(r.queue, e)
			continue
		}
		delete(r.at, e.snap.Origin)
		r.bytes -= e.size
	}
}

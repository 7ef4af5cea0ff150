package robots

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/robotsproxy/robotsproxy/origin"
)

// recent holds the newest Snapshots beside ristretto, which declines some that it thinks little of. Without it a busy host
// that was declined would cost a read of the Store at every request, and a fetch where there is none. One that is in use
// when its turn to go comes gets another turn.
type recent struct {
	limit int64 // octets

	mu    sync.RWMutex // guards what follows
	at    map[origin.Origin]*entry
	queue []*entry // in the order in which they go
	bytes int64
}

type entry struct {
	snap *Snapshot
	size int64
	used atomic.Bool // since its last turn
}

// Bounds of recent, whichever is met first.
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

// add takes snap in, in the place of an older one of its origin. The newest stays however large it is.
func (r *recent) add(snap *Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(snap.Origin)
	e := &entry{snap: snap, size: snap.size()}
	r.at[snap.Origin] = e
	r.bytes += e.size
	r.shrink()
	r.queue = append(r.queue, e) // last, so that it is not what goes
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

// shrink makes room. Each entry has at most one turn more, so it ends within two rounds.
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

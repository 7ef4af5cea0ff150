package robots

import (
	"maps"
	"slices"
	"sync"

	"github.com/robotsproxy/robotsproxy/origin"
)

// unsaved are the origins of which the Store does not have what counts, since it could not be saved. The zero value has
// none.
type unsaved struct {
	mu sync.Mutex // guards of
	of map[origin.Origin]struct{}
}

const maxUnsaved = 10_000 // origins; beyond, more are not noted

func (u *unsaved) add(o origin.Origin) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of == nil {
		u.of = make(map[origin.Origin]struct{})
	}
	if len(u.of) < maxUnsaved {
		u.of[o] = struct{}{}
	}
}

func (u *unsaved) has(o origin.Origin) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, ok := u.of[o]
	return ok
}

func (u *unsaved) remove(o origin.Origin) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.of, o)
}

// Unsaved returns the origins of which the Store, having failed, does not have what counts, in no order: those that it lacks
// altogether are in memory alone. There may be more than the 10,000 that it returns at the most.
func (c *Cache) Unsaved() []origin.Origin {
	c.unsaved.mu.Lock()
	defer c.unsaved.mu.Unlock()
	return slices.Collect(maps.Keys(c.unsaved.of))
}

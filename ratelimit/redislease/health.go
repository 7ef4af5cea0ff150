package redislease

import (
	"hash/fnv"
	"slices"
	"sync"
	"time"
)

const (
	// clockGrace is how much the clock of Redis may differ from what it was and our own has counted since. More is a
	// step, or another server.
	clockGrace = 2 * time.Second

	// settling is for how long after Redis came back an instance keeps to its share of the time as well, until all others
	// must have seen that it is back; and how long they may take to see that it has lost its memory.
	settling = beatEvery + commandTimeout
)

// A health is what one instance makes of Redis: whether it can be reached, from when on its word counts, its clock, and
// who else shares the lanes.
//
// Redis forgets: it is killed, a replica without the last writes takes over, its clock steps. So what it does not know of
// the time before since proves nothing, and no Delay may be counted from before then. Since lies a little in the future,
// so that everybody who holds a lease has renewed it, and is known again.
type health struct {
	id    string
	epoch time.Time // where our own, monotonic count of the time begins

	// mu guards what follows.
	mu        sync.Mutex
	up        bool
	err       error // why it is not
	since     time.Time
	settled   time.Time     // until then the instances keep to their shares
	clock     time.Duration // of Redis, at epoch; zero is not known yet
	warned    time.Time     // when it was last said that nobody was ever known
	servers   map[string]bool
	memory    int64     // since when Redis remembers, by its clock; zero is not known yet
	retold    time.Time // until then nothing starts: the instances tell Redis what it has forgotten
	instances []string  // in order; the last known while Redis is down
}

func newHealth(id string, now time.Time) *health {
	return &health{id: id, epoch: now, servers: make(map[string]bool)}
}

// fails notes that a command was not answered, and reports whether that is news.
func (h *health) fails(err error, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	news := h.up || h.err == nil
	if h.up {
		h.distrustLocked(now)
	}
	h.up, h.err = false, err
	return news
}

// returns notes that Redis answers, and reports whether that is news.
func (h *health) returns(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.up {
		return false
	}
	if h.err != nil {
		h.distrustLocked(now)
		h.settled = now.Add(settling)
	}
	h.up = true
	return true
}

// distrustLocked has no Delay counted from before now.
func (h *health) distrustLocked(now time.Time) { h.since = later(h.since, now.Add(renewEvery)) }

// serves notes a new connection to a server that started at boot. It reports whether that server may have forgotten
// something: if it is new to this instance, which knew another one before, it was restarted or has taken over.
func (h *health) serves(run string, boot, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.servers[run] {
		return false
	}
	forgot := len(h.servers) > 0
	if forgot {
		h.forgotLocked(now)
	}
	h.since = later(h.since, boot)
	h.servers[run] = true
	return forgot
}

// remembers notes since when Redis remembers, by its clock. It reports whether Redis has lost its memory since the last call.
func (h *health) remembers(since int64, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	forgot := h.memory != 0 && h.memory != since
	h.memory = since
	if forgot {
		h.forgotLocked(now)
	}
	return forgot
}

// forgotLocked stops all lanes, with a Delay or without, until the other instances must have noticed that Redis has lost its
// memory and have told it their pauses and orders.
func (h *health) forgotLocked(now time.Time) {
	h.distrustLocked(now)
	h.retold = now.Add(settling)
}

// hears sets the clock by an answer that came between sent and now.
func (h *health) hears(clock time.Duration, sent, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	took := now.Sub(sent)
	clock -= sent.Add(took / 2).Sub(h.epoch)
	if h.clock != 0 && (clock-h.clock).Abs() <= took/2 {
		return // a slow answer says nothing more exact than what is known
	}
	if h.clock != 0 && (clock-h.clock).Abs() > clockGrace {
		h.distrustLocked(now)
	}
	h.clock = clock
}

// reads returns what the clock of Redis will say at t, and 0 if that is not known yet.
func (h *health) reads(t time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.clock == 0 {
		return 0
	}
	return h.clock + t.Sub(h.epoch)
}

// meets notes who shares the lanes. While the instances come back one by one, those known before count.
func (h *health) meets(instances []string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.After(h.settled) || len(instances) > len(h.instances) {
		h.instances = instances
	}
}

// down returns why Redis cannot be reached, nil if it can.
func (h *health) down() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.up {
		return nil
	}
	return h.err
}

// knows reports whether Redis has ever said who shares the lanes.
func (h *health) knows() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.instances) > 0
}

// alone reports, once a minute, whether Redis has never said who shares the lanes.
func (h *health) alone(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.instances) > 0 || now.Sub(h.warned) < time.Minute {
		return false
	}
	h.warned = now
	return true
}

// sharers returns how many share the lanes, as far as known.
func (h *health) sharers() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(1, len(h.instances))
}

// distrusted returns how long a request with this delay waits for what Redis may have forgotten.
func (h *health) distrusted(delay time.Duration, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	until := h.retold
	if delay > 0 && !h.since.IsZero() {
		until = later(until, h.since.Add(delay))
	}
	return max(0, until.Sub(now))
}

// forgot reports whether Redis may have forgotten since what it said at a moment.
func (h *health) forgot(at time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return at.Before(h.since)
}

// settles reports whether others may not know yet that Redis is back.
func (h *health) settles(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return now.Before(h.settled)
}

// slot returns how long it is until the next slot of this instance in the lane of key, 0 if it has begun just now.
//
// The slots follow each other by the clock of Redis, which every instance goes on counting by itself, one for each
// instance in turn. A slot is a delay long and a quarter more, 200 ms at least; what starts in the first quarter of that
// excess leaves the rest of it for the request to end, and for clocks that differ.
func (h *health) slot(key string, delay time.Duration, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	rank := slices.Index(h.instances, h.id)
	if delay == 0 || rank < 0 || len(h.instances) < 2 {
		return 0
	}
	excess := max(delay/4, 200*time.Millisecond)
	width := delay + excess
	round := width * time.Duration(len(h.instances))
	into := (h.clock + now.Sub(h.epoch) + phase(key)%round - width*time.Duration(rank)) % round
	if into < 0 {
		into += round
	}
	if into <= excess/4 {
		return 0
	}
	return round - into
}

// phase shifts the slots of each lane, or all lanes would start at the same moments.
func phase(key string) time.Duration {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(key))
	return time.Duration(hash.Sum32()) * time.Microsecond
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

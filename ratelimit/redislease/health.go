package redislease

import (
	"hash/fnv"
	"slices"
	"sync"
	"time"
)

const (
	// clockGrace is how much the clock of Redis may differ from the one that this instance extrapolates. More is a
	// step, or another server.
	clockGrace = 2 * time.Second

	// settleTime is how long all other instances may take to see that Redis has returned, or has lost its memory.
	settleTime = heartbeatEvery + commandTimeout
)

// A health is what one instance knows of Redis: whether it is up, how far back its memory reaches, its clock, and the
// instances that share the lanes.
//
// Redis loses its memory: it is killed, a replica without the last writes takes over, its clock steps. That it knows of
// no request before trusted proves nothing, so no Delay is counted from before then. That time lies a little in the
// future, so that each holder of a lease has renewed it by then, and is known again.
type health struct {
	id    string
	epoch time.Time // the start of this instance's monotonic clock

	// mu guards the fields below.
	mu        sync.Mutex
	up        bool
	err       error         // why Redis is down
	trusted   time.Time     // no Delay is counted from before
	settled   time.Time     // until then the instances keep to their slots
	clock     time.Duration // of Redis at epoch; zero: not known yet
	warned    time.Time     // when unknownInstances last returned true
	servers   map[string]bool
	memory    int64     // since when Redis remembers, by its clock; zero: not known yet
	resent    time.Time // until then nothing starts, while the instances send what Redis has forgotten
	instances []string  // in order; while Redis is down, the last known
}

func newHealth(id string, now time.Time) *health {
	return &health{id: id, epoch: now, servers: make(map[string]bool)}
}

// fall marks Redis as down because of err. It reports whether Redis was up, or its state unknown.
func (h *health) fall(err error, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed := h.up || h.err == nil
	if h.up {
		h.distrustLocked(now)
	}
	h.up, h.err = false, err
	return changed
}

// rise marks Redis as up. It reports whether Redis was down, or its state unknown.
func (h *health) rise(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.up {
		return false
	}
	if h.err != nil {
		h.distrustLocked(now)
		h.settled = now.Add(settleTime)
	}
	h.up = true
	return true
}

// down returns why Redis is down, nil if it is up.
func (h *health) down() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.up {
		return nil
	}
	return h.err
}

// distrustLocked has no Delay counted from before now.
func (h *health) distrustLocked(now time.Time) { h.trusted = later(h.trusted, now.Add(renewEvery)) }

// setServer takes the id of the server of a new connection, and when the server started. It reports whether Redis may
// have lost its memory: a server that is new to an instance which knew another one was restarted, or has taken over.
func (h *health) setServer(run string, started, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.servers[run] {
		return false
	}
	lost := len(h.servers) > 0
	if lost {
		h.memoryLostLocked(now)
	}
	h.trusted = later(h.trusted, started)
	h.servers[run] = true
	return lost
}

// setMemory takes since when Redis remembers, by its clock. It reports whether Redis has lost its memory since the last
// call.
func (h *health) setMemory(since int64, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	lost := h.memory != 0 && h.memory != since
	h.memory = since
	if lost {
		h.memoryLostLocked(now)
	}
	return lost
}

// memoryLostLocked stops all lanes, with a Delay or without, until the other instances must have noticed that Redis has
// lost its memory, and have sent their pauses and overrides.
func (h *health) memoryLostLocked(now time.Time) {
	h.distrustLocked(now)
	h.resent = now.Add(settleTime)
}

// distrusts returns how long a request with this delay waits because Redis may have lost its memory.
func (h *health) distrusts(delay time.Duration, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	until := h.resent
	if delay > 0 && !h.trusted.IsZero() {
		until = later(until, h.trusted.Add(delay))
	}
	return max(0, until.Sub(now))
}

// distrustsAt reports whether Redis may have forgotten an answer that it gave at t.
func (h *health) distrustsAt(t time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return t.Before(h.trusted)
}

// setClock sets the clock by an answer to a question that was sent at sent and answered at now.
func (h *health) setClock(clock time.Duration, sent, now time.Time) {
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

// clockAt returns the clock of Redis at t, 0 if it is not known yet.
func (h *health) clockAt(t time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.clock == 0 {
		return 0
	}
	return h.clock + t.Sub(h.epoch)
}

// setInstances takes the instances that share the lanes. While they return one by one, those known before count.
func (h *health) setInstances(instances []string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.After(h.settled) || len(instances) > len(h.instances) {
		h.instances = instances
	}
}

// unknownInstances reports whether Redis has never said which instances share the lanes, true at most once a minute.
func (h *health) unknownInstances(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.instances) > 0 || now.Sub(h.warned) < time.Minute {
		return false
	}
	h.warned = now
	return true
}

// count returns how many instances share the lanes, with this one. It returns 0 if Redis has never said so.
func (h *health) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.instances)
}

// settling reports whether some instances may not know yet that Redis has returned.
func (h *health) settling(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return now.Before(h.settled)
}

// untilSlot returns how long it is until the next slot of this instance in the lane of key, 0 if it has just begun.
//
// The slots follow each other by the clock of Redis, which every instance extrapolates, one for each instance in turn.
// A slot is as long as the delay and a margin of a quarter of it, at least 200 ms. A request starts in the first
// quarter of the margin; the rest is for the request to end, and for clocks that differ.
func (h *health) untilSlot(key string, delay time.Duration, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	rank := slices.Index(h.instances, h.id)
	if delay == 0 || rank < 0 || len(h.instances) < 2 {
		return 0
	}
	margin := max(delay/4, 200*time.Millisecond)
	width := delay + margin
	round := width * time.Duration(len(h.instances))
	into := (h.clock + now.Sub(h.epoch) + phase(key)%round - width*time.Duration(rank)) % round
	if into < 0 {
		into += round
	}
	if into <= margin/4 {
		return 0
	}
	return round - into
}

// phase shifts the slots of each lane, so that not all lanes start at the same time.
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

package ratelimit

import (
	"context"
	"time"
)

// A laneState is the state of a lane in a form that another process understands. Its moments are relative to the one at
// which it was exported: the clock of another process may differ, and the time on the way makes each wait longer, never
// shorter. It contains no debts and no misses, so turns begin anew.
type laneState struct {
	Key         string
	DelayFrom   *time.Duration  `json:",omitempty"` // how long ago; nil: no request was sent
	GapFrom     *time.Duration  `json:",omitempty"`
	ReportSlot  *time.Duration  `json:",omitempty"` // how long ago; negative: in the future
	Starts      *float64        `json:",omitempty"` // tokens of the pacer's second bucket; nil: it is full
	Longest     time.Duration   `json:",omitempty"`
	AvgDuration time.Duration   `json:",omitempty"`
	Hold        *holdState      `json:",omitempty"`
	InFlight    []inflightState `json:",omitempty"` // oldest first
	Waiting     []waiterState   `json:",omitempty"` // the clients in the order of their turns
}

type holdState struct {
	Pause     pauseState
	Began     *time.Duration `json:",omitempty"` // how long ago
	Recent    []eventState   `json:",omitempty"`
	Client    string         // that is paused alone
	OfClient  pauseState
	EventAt   *time.Duration `json:",omitempty"` // how long ago
	Floor     time.Duration
	Stopped   bool
	StopUntil time.Time
}

type pauseState struct {
	Over   *time.Duration `json:",omitempty"` // how long ago the pause has ended; negative: it goes on
	Source Source
	Streak int
}

type eventState struct {
	Client string
	Ago    time.Duration
}

type inflightState struct {
	ID      uint64
	Client  string
	Ago     time.Duration // since its start
	Spacing time.Duration
	Heard   bool
}

// A waiterState is a request that waits, or a reservation.
type waiterState struct {
	ID      uint64 // 0: a reservation
	Client  string
	Delay   time.Duration
	MaxWait time.Duration
	Ago     time.Duration // since it has arrived
	Due     time.Duration // from now
	Part    bool
}

// ago returns how long before now the moment t was, or nil if t is zero.
func ago(t, now time.Time) *time.Duration {
	if t.IsZero() {
		return nil
	}
	d := now.Sub(t)
	return &d
}

// before returns the moment that was d before now, or the zero time if d is nil.
func before(now time.Time, d *time.Duration) time.Time {
	if d == nil {
		return time.Time{}
	}
	return now.Add(-*d)
}

// export returns the state of the lane, and numbers its requests for to.
func (s *state) export(key string, to *successor, now time.Time) laneState {
	ls := laneState{
		Key: key, DelayFrom: ago(s.pacer.delayFrom, now), GapFrom: ago(s.gapFrom, now),
		ReportSlot: ago(s.lastSlot(), now), Starts: s.pacer.tokens(now),
		Longest: s.longest, AvgDuration: s.avgDuration, Hold: s.hold.export(now),
	}
	for f := s.inflights.oldest; f != nil; f = f.newer {
		f.remote = to.number()
		ls.InFlight = append(ls.InFlight, inflightState{f.remote, f.client, now.Sub(f.start), f.spacing, f.heard})
	}
	if s.queue == nil {
		return ls
	}
	for w := range s.queue.all() {
		ws := waiterState{
			Client: w.client, Delay: w.delay, MaxWait: w.maxWait, Ago: now.Sub(w.arrived), Due: w.due.Sub(now), Part: w.part,
		}
		if !w.reserved() {
			w.inflight.remote = to.expect()
			ws.ID = w.inflight.remote
		}
		ls.Waiting = append(ls.Waiting, ws)
	}
	return ls
}

// unexport undoes the numbering of export.
func (s *state) unexport() {
	for f := s.inflights.oldest; f != nil; f = f.newer {
		f.remote = 0
	}
	if s.queue == nil {
		return
	}
	for w := range s.queue.all() {
		if !w.reserved() {
			w.inflight.remote = 0
		}
	}
}

// vacate removes all requests after another process has adopted them, and wakes those that wait.
func (s *state) vacate(now time.Time) {
	s.rejectIf(now, func(*waiter) error { return errMoved })
	s.queue, s.inflights = nil, inflights{}
	s.emit(effect{kind: stopTimer})
}

// adopt adds ls, the state of this lane in another process, to s. The requests of ls follow by adoptInFlight and
// adoptWaiting.
func (s *state) adopt(ls laneState, now time.Time) {
	s.longest, s.avgDuration = max(s.longest, ls.Longest), ls.AvgDuration
	s.countFrom(later(s.pacer.delayFrom, before(now, ls.DelayFrom)), later(s.gapFrom, before(now, ls.GapFrom)))
	if ls.ReportSlot != nil {
		slot := before(now, ls.ReportSlot)
		s.reportSlot = &slot
	}
	if ls.Starts != nil {
		s.pacer.adoptTokens(*ls.Starts, &s.rules.Options, now)
	}
	if ls.Hold != nil {
		s.ensureHold().adopt(ls.Hold, now)
	}
}

// adoptInFlight makes f the request that is in flight in another process. To cancel it restores no earlier moment.
func (s *state) adoptInFlight(f *inflight, from inflightState, now time.Time) {
	f.client, f.clientTime, f.lease, f.spacing = from.Client, nil, nil, from.Spacing
	f.terms = terms{start: now.Add(-from.Ago)}
	f.done, f.heard, f.overlaps, f.moves = false, from.Heard, false, s.moves-1
	s.inflights.add(f)
}

// adoptWaiting adds a request that waits in another process, which becomes f, or a reservation.
func (s *state) adoptWaiting(ctx context.Context, f *inflight, from waiterState, now time.Time) *waiter {
	w := &waiter{
		client: from.Client, delay: from.Delay, maxWait: from.MaxWait, part: from.Part,
		arrived: now.Add(-from.Ago), due: now.Add(from.Due),
	}
	if from.ID != 0 {
		f.client, f.clientTime = from.Client, nil
		w.ctx, w.inflight, w.ready = ctx, f, make(chan struct{}, 1)
	}
	s.push(w)
	return w
}

func (h *hold) export(now time.Time) *holdState {
	if h.over(now) {
		return nil
	}
	hs := &holdState{
		Pause:  pauseState{ago(h.until, now), h.source, h.streak},
		Began:  ago(h.began, now),
		Client: h.client.client, OfClient: pauseState{ago(h.client.until, now), h.client.source, h.client.streak},
		EventAt: ago(h.client.eventAt, now),
		Floor:   h.floor, Stopped: h.stopped, StopUntil: h.stopUntil,
	}
	for _, e := range h.recent {
		hs.Recent = append(hs.Recent, eventState{e.client, now.Sub(e.at)})
	}
	return hs
}

// adopt makes h the hold hs, except for a pause of h that ends later, as one in Pauses may.
func (h *hold) adopt(hs *holdState, now time.Time) {
	stored := h.backoff
	h.backoff = backoff{
		until: before(now, hs.Pause.Over), source: hs.Pause.Source, streak: hs.Pause.Streak, began: before(now, hs.Began),
		client: clientPause{
			client: hs.Client, until: before(now, hs.OfClient.Over), source: hs.OfClient.Source, streak: hs.OfClient.Streak,
			eventAt: before(now, hs.EventAt),
		},
	}
	if stored.until.After(h.until) {
		h.until, h.source, h.streak = stored.until, stored.source, stored.streak
	}
	for _, e := range hs.Recent {
		h.recent = append(h.recent, throttleEvent{e.Client, now.Add(-e.Ago)})
	}
	h.floor, h.stopped, h.stopUntil = hs.Floor, hs.Stopped, hs.StopUntil
}

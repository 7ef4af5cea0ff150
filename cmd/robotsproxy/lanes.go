package main

import (
	"time"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/ratelimit"
)

// lanes are the hosts to which requests go: their requests of late, and their lanes now.
type lanes struct {
	*components
	*admin.Activity
}

// Lanes returns the hosts that were visited within window, and lanes that are busy or paused and have no such host. If
// hosts share a lane, each has its queue.
func (l lanes) Lanes(window time.Duration) []admin.Lane {
	now := time.Now()
	busy := make(map[string]ratelimit.View)
	for key, v := range l.limiter.Views() {
		if v.Waiting+v.InFlight > 0 || !v.PausedUntil.IsZero() {
			busy[key] = v
		}
	}
	cfg := l.control.config()
	var all []admin.Lane
	for _, h := range l.Hosts(window) {
		lane := admin.Lane{Host: h.Host, HostCounts: h.HostCounts, Last: h.Last.UTC(), Origin: h.Origin}
		var v ratelimit.View
		if key, ok := l.lastLane(cfg, h.Host); ok {
			v, _ = l.limiter.Peek(key)
			delete(busy, key)
		}
		delete(busy, h.Host) // a lane of that name is left over from another pacing.key
		l.setPace(&lane, v, h.Delay, h.DelaySource, now)
		all = append(all, lane)
	}
	for key, v := range busy {
		lane := admin.Lane{Host: key}
		l.setPace(&lane, v, v.Delay, "", now)
		all = append(all, lane)
	}
	return all
}

// setPace sets the pace now of a lane that v shows. Its requests keep delay, or the operator's least Delay if that is
// longer.
func (l lanes) setPace(lane *admin.Lane, v ratelimit.View, delay time.Duration, source string, now time.Time) {
	if source == string(ratelimit.Floor) { // that of its last request, which may have been lifted
		delay, source = 0, ""
	}
	if floor := max(v.Floor, l.control.policy().Floor(lane.Host, now)); floor > delay {
		delay, source = floor, string(ratelimit.Floor)
	}
	lane.Delay, lane.DelaySource = inSeconds(delay), source
	lane.Waiting, lane.Active = v.Waiting, v.InFlight
	lane.PausedUntil, lane.PauseSource = v.PausedUntil.UTC(), string(v.PauseSource)
	next := v.Start // as it was predicted when that request came
	if v.Waiting > 0 {
		delay = v.Delay
	}
	if delay > 0 && !v.Last.IsZero() {
		next = v.Last.Add(delay)
		if v.InFlight > 0 {
			next = next.Add(v.Took)
		}
	}
	if v.PausedUntil.After(next) {
		next = v.PausedUntil
	}
	if next.After(now) {
		lane.NextSlot = next.UTC()
	}
}

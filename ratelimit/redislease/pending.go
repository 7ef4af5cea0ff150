package redislease

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/ratelimit"
)

// maxPause is a little less than the longest pause that common.lua accepts.
const maxPause = 47 * time.Hour

// A pause is a time until which nothing is sent to a lane.
type pause struct {
	until  time.Time
	source ratelimit.Source
}

// pendingUpdates are the pauses and overrides to send to Redis, by key: those that it does not know yet, and those that
// it may have forgotten.
type pendingUpdates struct {
	pauses    map[string]pause
	overrides map[string]datedOverride // a new one is at 0
}

func newPendingUpdates() pendingUpdates {
	return pendingUpdates{make(map[string]pause), make(map[string]datedOverride)}
}

// pause adds p, unless a pause that ends later is pending.
func (u pendingUpdates) pause(key string, p pause) {
	if p.until.After(u.pauses[key].until) {
		u.pauses[strings.Clone(key)] = p
	}
}

// override adds o. A new override replaces any other, and a reminder replaces another reminder only.
func (u pendingUpdates) override(key string, o datedOverride) {
	if earlier, ok := u.overrides[key]; ok && earlier.at == 0 && o.at > 0 {
		return
	}
	u.overrides[strings.Clone(key)] = o
}

// Pause implements ratelimit.Coordinator. It shortens a pause of more than 47 hours to that.
func (c *Client) Pause(key string, d time.Duration, source ratelimit.Source) {
	p := pause{time.Now().Add(min(d, maxPause)), source}
	c.mu.Lock()
	c.pauseLocked(key, p)
	c.pending.pause(key, p)
	c.mu.Unlock()
	c.wantSend()
}

// CountThrottle implements ratelimit.Coordinator.
func (c *Client) CountThrottle(e ratelimit.ThrottleEvent) (ratelimit.ThrottleResult, error) {
	if err := c.health.down(); err != nil {
		return ratelimit.ThrottleResult{}, err
	}
	personal := 0
	if e.Personal {
		personal = 1
	}
	args := []any{e.Client, micros(time.Since(e.Sent)), e.Streak, personal, micros(e.RetryAfter)}
	v, err := c.call(&command{script: backoffScript, verb: "throttle", key: e.Key, args: args})
	if err != nil {
		return ratelimit.ThrottleResult{}, err
	}
	result := ratelimit.ThrottleResult{Paused: v.duration(0), Streak: int(v.number(1)), PauseSource: v.source(2)}
	c.learnPause(e.Key, result.Paused, result.PauseSource)
	return result, nil
}

// Override implements ratelimit.Coordinator.
func (c *Client) Override(key string, o ratelimit.Override) error {
	dated := datedOverride{Override: o}
	c.mu.Lock()
	c.overrides.set(key, o)
	c.pending.override(key, dated)
	c.mu.Unlock()
	if err := c.health.down(); err != nil {
		return err
	}
	_, err := c.call(c.overrideCommand(key, dated))
	return err
}

// overrideCommand returns the command that sends o to Redis.
func (c *Client) overrideCommand(key string, o datedOverride) *command {
	cmd := &command{script: overrideScript, verb: "set", key: key, args: overrideArgs(o.Override), repeats: true}
	if o.at > 0 {
		cmd.verb, cmd.args = "remind", append([]any{o.at}, cmd.args...)
	}
	cmd.heard = func(v reply) { c.overrideSent(key, o, v) }
	return cmd
}

// overrideSent takes the answer to overrideCommand.
func (c *Client) overrideSent(key string, o datedOverride, v reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.at == 0 {
		c.overrides.confirm(key, o.Override, v.number(0))
	}
	if c.pending.overrides[key] == o {
		delete(c.pending.overrides, key)
	}
}

// pauseCommand returns the command that sends p to Redis.
func (c *Client) pauseCommand(key string, p pause) *command {
	args := []any{micros(max(0, time.Until(p.until))), string(p.source)}
	heard := func(reply) { c.pauseSent(key, p) }
	return &command{script: backoffScript, verb: "pause", key: key, args: args, repeats: true, heard: heard}
}

// pauseSent notes that Redis knows p.
func (c *Client) pauseSent(key string, p pause) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.pending.pauses[key].until.After(p.until) {
		delete(c.pending.pauses, key)
	}
}

// hasPending reports whether updates are pending.
func (c *Client) hasPending() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending.pauses)+len(c.pending.overrides) > 0
}

// wantSend makes sendLoop send the pending updates.
func (c *Client) wantSend() {
	select {
	case c.send <- struct{}{}:
	default:
	}
}

// sendLoop sends the pending updates whenever wantSend was called, until the Client is closed. If Redis goes down
// meanwhile, the heartbeat calls wantSend when it returns.
func (c *Client) sendLoop() {
	for {
		select {
		case <-c.send:
		case <-c.closing.Done():
			return
		}
		c.sendPending()
	}
}

// sendPending sends the pending updates, unless Redis is down.
func (c *Client) sendPending() {
	if c.health.down() != nil {
		return // the updates are not copied for each pause that begins meanwhile
	}
	var commands []func() *command // each is called when it is sent, since it counts the rest of a pause from then
	c.mu.Lock()
	for key, p := range c.pending.pauses {
		commands = append(commands, func() *command { return c.pauseCommand(key, p) })
	}
	for key, o := range c.pending.overrides {
		commands = append(commands, func() *command { return c.overrideCommand(key, o) })
	}
	c.mu.Unlock()
	for some := range slices.Chunk(commands, maxCalls) {
		if c.health.down() != nil {
			return
		}
		c.sendAll(some)
	}
}

// sendAll sends commands and waits for the answers.
func (c *Client) sendAll(commands []func() *command) {
	var waiting sync.WaitGroup
	for _, command := range commands {
		cmd := command()
		cmd.done = func(reply, error) { waiting.Done() }
		waiting.Add(1)
		if !c.pipe(cmd.key).put(cmd) {
			waiting.Done()
		}
	}
	waiting.Wait()
}

// resend makes all pauses and overrides that this instance knows pending, since Redis may have forgotten them.
func (c *Client) resend() {
	c.mu.Lock()
	now := time.Now()
	for key, p := range c.pauses {
		if p.until.After(now) {
			c.pending.pause(key, p)
		}
	}
	for key := range c.overrides.all() {
		if o := c.overrides.reminder(key, now); o.at > 0 {
			c.pending.override(key, o)
		}
	}
	c.mu.Unlock()
	c.wantSend()
}

// learnPause takes a pause from an answer of Redis.
func (c *Client) learnPause(key string, rest time.Duration, source ratelimit.Source) {
	if rest <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pauseLocked(key, pause{time.Now().Add(rest), source})
}

// pauseLocked keeps p if it ends later than the pause that is kept for key. It removes the pauses that are over
// whenever their number has doubled.
func (c *Client) pauseLocked(key string, p pause) {
	if !p.until.After(c.pauses[key].until) {
		return
	}
	c.pauses[strings.Clone(key)] = p
	if len(c.pauses) < 2*max(c.swept, 1024) {
		return
	}
	now := time.Now()
	maps.DeleteFunc(c.pauses, func(_ string, p pause) bool { return !p.until.After(now) })
	c.swept = len(c.pauses)
}

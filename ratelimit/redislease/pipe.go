package redislease

import (
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// pipes is how many connections carry commands. Each lane has its commands in one of them, so they keep their order.
	pipes = 8

	// batch is how many commands go to Redis in one round trip at most.
	batch = 128

	// mentions is how many lanes may have a mention waiting in one pipe. A mention of one more is dropped.
	mentions = 4096
)

// A command is one verb of lease.lua for one lane.
type command struct {
	verb, key string
	args      []any
	repeats   bool               // running it twice does no harm
	repeated  bool               // it was sent twice
	mention   bool               // a lane needs only one in the queue
	done      func(reply, error) // called once by the pipe; must not block; may be nil
}

// A pipe sends commands to Redis in order. The commands that arrive while others are under way are sent together, up to
// batch. The queue is bounded by its users: calls that wait for an answer (askers), one command for each lease, and mentions.
type pipe struct {
	redis *Client
	more  chan struct{} // capacity 1: the queue is not empty

	// mu guards what follows.
	mu        sync.Mutex
	queue     []*command
	mentioned map[string]*command // the mentions in the queue, by key
	busy      bool                // commands are under way
	idle      sync.Cond           // the queue is empty and busy is false
	closed    bool
}

func newPipe(r *Client) *pipe {
	p := &pipe{redis: r, more: make(chan struct{}, 1), mentioned: make(map[string]*command)}
	p.idle.L = &p.mu
	return p
}

// pipe returns the pipe of the lane of key.
func (r *Client) pipe(key string) *pipe {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(key))
	return r.pipes[hash.Sum32()%pipes]
}

// put adds c to the queue. It reports false if the pipe is closed.
func (p *pipe) put(c *command) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	if c.mention && !p.mentionLocked(c) {
		return true
	}
	p.queue = append(p.queue, c)
	select {
	case p.more <- struct{}{}:
	default:
	}
	return true
}

// mentionLocked reports whether c needs a place in the queue. If the queue has a mention of the same lane, that one keeps the
// longer Delay of both.
func (p *pipe) mentionLocked(c *command) bool {
	if earlier := p.mentioned[c.key]; earlier != nil {
		if c.args[0].(int64) > earlier.args[0].(int64) {
			earlier.args = c.args
		}
		return false
	}
	if len(p.mentioned) >= mentions {
		return false
	}
	p.mentioned[c.key] = c
	return true
}

// take returns the next commands to send, none if the queue is empty.
func (p *pipe) take() []*command {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := min(len(p.queue), batch)
	taken := slices.Clone(p.queue[:n])
	p.queue = slices.Delete(p.queue, 0, n)
	for _, c := range taken {
		if c.mention {
			delete(p.mentioned, c.key)
		}
	}
	if p.busy = n > 0; !p.busy {
		p.idle.Broadcast()
	}
	return taken
}

// work sends commands until the Client is closed.
func (p *pipe) work() {
	for {
		if commands := p.take(); len(commands) > 0 {
			p.redis.carry(commands)
			continue
		}
		select {
		case <-p.more:
		case <-p.redis.closing.Done():
			return
		}
	}
}

// drain waits until the queue is empty and nothing is under way, then closes the pipe.
func (p *pipe) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.queue) > 0 || p.busy {
		p.idle.Wait()
	}
	p.closed = true
}

// carry sends commands to Redis and finishes each. If the connection breaks or Redis is late, the probe decides whether
// Redis is down. If it is up, carry sends the commands that may run twice once more.
func (r *Client) carry(commands []*command) {
	err := r.health.down()
	if err != nil {
		finish(commands, err)
		return
	}
	commands, err = r.exchange(commands)
	if len(commands) == 0 {
		return
	}
	if r.verdict() != nil {
		finish(commands, err)
		return
	}
	var again, lost []*command
	for _, c := range commands {
		if c.repeated = c.repeats; c.repeated {
			again = append(again, c)
		} else {
			lost = append(lost, c)
		}
	}
	finish(lost, err)
	if again, err = r.exchange(again); err != nil {
		finish(again, err)
	}
}

// finish finishes commands that were not answered because of err.
func finish(commands []*command, err error) {
	for _, c := range commands {
		c.finish(nil, err)
	}
}

func (c *command) finish(v reply, err error) {
	if c.done != nil {
		c.done(v, err)
	}
}

// exchange sends commands in one pipeline, and in a second one those for which Redis did not have the script. It finishes the
// commands that were answered. It returns the others and the reason, which is not nil if there are any.
func (r *Client) exchange(commands []*command) ([]*command, error) {
	if len(commands) == 0 {
		return nil, nil
	}
	unknown, lost, err := r.pipeline(commands, leaseScript.EvalSha)
	if err == nil && len(unknown) > 0 {
		unknown, lost, err = r.pipeline(unknown, leaseScript.Eval)
	}
	if err == nil && len(unknown) > 0 {
		err = errors.New("redislease: Redis did not load lease.lua")
	}
	return append(lost, unknown...), err
}

// pipeline sends commands in one pipeline: the first one by eval, which loads the script if it is Eval, the others by EvalSha.
// It finishes the commands that were answered. It returns those for which Redis did not have the script, those that were
// lost, and the reason of the latter.
func (r *Client) pipeline(commands []*command, eval func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd) (unknown, lost []*command, err error) {
	ctx, cancel := context.WithTimeout(r.closing, commandTimeout)
	defer cancel()
	slow := time.AfterFunc(probeEvery, r.probe.want)
	defer slow.Stop()
	sent := time.Now()
	late := r.health.reads(sent.Add(commandTimeout))
	line := r.client.Pipeline()
	answers := make([]*redis.Cmd, len(commands))
	for i, c := range commands {
		argv := append([]any{c.verb, r.id, c.key, r.channel, micros(leaseLasts), micros(late)}, c.args...)
		answers[i] = eval(ctx, once{line}, r.keys(c.key), argv...)
		eval = leaseScript.EvalSha
	}
	_, _ = line.Exec(ctx) // each answer has the error
	for i, c := range commands {
		v, failure := r.read(c, answers[i], sent)
		var refusal redis.Error
		switch {
		case failure == nil:
			c.finish(v, nil)
		case redis.HasErrorPrefix(failure, "NOSCRIPT"):
			unknown = append(unknown, c)
		case errors.As(failure, &refusal):
			r.failed(failure) // a server that refuses our commands is of no use
			c.finish(nil, failure)
		default:
			lost, err = append(lost, c), failure
		}
	}
	return unknown, lost, err
}

package redislease

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// pipes is how many connections carry commands. The commands of one lane use the same one, so they keep their
	// order.
	pipes = 8

	// maxBatch is the largest number of commands in one round trip.
	maxBatch = 128

	// maxMerged is how many commands that merge may be in the queue of one pipe. Any more are dropped.
	maxMerged = 4096
)

// A command runs one verb of a script on one lane.
type command struct {
	script   *redis.Script // if nil, leaseScript
	verb     string
	key      string
	args     []any
	repeats  bool      // to run it twice does no harm
	repeated bool      // it was sent twice
	merges   bool      // the queue holds at most one for each lane
	sent     time.Time // for the first time

	// The pipe calls heard with the answer, if there is one, and then done with the answer or the error, each once. Both
	// may be nil, and must not block.
	heard func(reply)
	done  func(reply, error)
}

// A pipe sends commands to Redis in order. It sends the commands that arrive while others are in flight together, up to
// maxBatch. Its users bound the queue: maxCalls, one command for each lease, and maxMerged.
type pipe struct {
	client *Client
	more   chan struct{} // capacity 1: the queue is not empty

	// mu guards the fields below.
	mu     sync.Mutex
	queue  []*command
	merged map[string]*command // the commands in the queue that merge, by key
	busy   bool                // commands are in flight
	idle   sync.Cond           // the queue is empty and busy is false
	closed bool
}

func newPipe(c *Client) *pipe {
	p := &pipe{client: c, more: make(chan struct{}, 1), merged: make(map[string]*command)}
	p.idle.L = &p.mu
	return p
}

// pipe returns the pipe of the lane of key.
func (c *Client) pipe(key string) *pipe {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(key))
	return c.pipes[hash.Sum32()%pipes]
}

// put adds cmd to the queue. It returns false if the pipe is closed.
func (p *pipe) put(cmd *command) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	if cmd.merges && !p.mergeLocked(cmd) {
		return true
	}
	p.queue = append(p.queue, cmd)
	select {
	case p.more <- struct{}{}:
	default:
	}
	return true
}

// mergeLocked reports whether cmd has to be added to the queue. If the queue has a command of the same lane that
// merges, that one gets the longer Delay of both.
func (p *pipe) mergeLocked(cmd *command) bool {
	if earlier := p.merged[cmd.key]; earlier != nil {
		if cmd.args[0].(int64) > earlier.args[0].(int64) {
			earlier.args = cmd.args
		}
		return false
	}
	if len(p.merged) >= maxMerged {
		return false
	}
	p.merged[cmd.key] = cmd
	return true
}

// take returns the next commands to send, an empty slice if the queue is empty.
func (p *pipe) take() []*command {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := min(len(p.queue), maxBatch)
	taken := slices.Clone(p.queue[:n])
	p.queue = slices.Delete(p.queue, 0, n)
	for _, cmd := range taken {
		if cmd.merges {
			delete(p.merged, cmd.key)
		}
	}
	if p.busy = n > 0; !p.busy {
		p.idle.Broadcast()
	}
	return taken
}

// run sends commands until the Client is closed.
func (p *pipe) run() {
	for {
		if commands := p.take(); len(commands) > 0 {
			p.client.deliver(commands)
			continue
		}
		select {
		case <-p.more:
		case <-p.client.closing.Done():
			return
		}
	}
}

// drain waits until the queue is empty and no command is in flight, then closes the pipe.
func (p *pipe) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.queue) > 0 || p.busy {
		p.idle.Wait()
	}
	p.closed = true
}

// deliver sends commands to Redis and finishes each. If the connection breaks or Redis is late, the probe decides
// whether Redis is down. If it is up, deliver sends the commands that may run twice once more.
func (c *Client) deliver(commands []*command) {
	err := c.health.down()
	if err != nil {
		finish(commands, err)
		return
	}
	commands, err = c.exchange(commands)
	if len(commands) == 0 {
		return
	}
	if c.check() != nil {
		finish(commands, err)
		return
	}
	var again, lost []*command
	for _, cmd := range commands {
		if cmd.repeated = cmd.repeats; cmd.repeated {
			again = append(again, cmd)
		} else {
			lost = append(lost, cmd)
		}
	}
	finish(lost, err)
	if again, err = c.exchange(again); err != nil {
		finish(again, err)
	}
}

// finish finishes commands that were not answered because of err.
func finish(commands []*command, err error) {
	for _, cmd := range commands {
		cmd.finish(nil, err)
	}
}

func (cmd *command) finish(v reply, err error) {
	if err == nil && cmd.heard != nil {
		cmd.heard(v)
	}
	if cmd.done != nil {
		cmd.done(v, err)
	}
}

// exchange sends commands in one pipeline, and then those in a second one for which Redis did not have the script. It
// finishes the commands that were answered. It returns the others and the reason, which is not nil if there are any.
func (c *Client) exchange(commands []*command) ([]*command, error) {
	if len(commands) == 0 {
		return nil, nil
	}
	unknown, lost, err := c.pipeline(commands, false)
	if err == nil && len(unknown) > 0 {
		unknown, lost, err = c.pipeline(unknown, true)
	}
	if err == nil && len(unknown) > 0 {
		err = errors.New("redislease: Redis did not keep the scripts that it was sent")
	}
	return append(lost, unknown...), err
}

// pipeline sends commands in one pipeline. If load is true, the first command of each script carries the script. It
// finishes the commands that were answered. It returns those for which Redis did not have the script, those that were
// lost, and the reason of the latter.
func (c *Client) pipeline(commands []*command, load bool) (unknown, lost []*command, err error) {
	ctx, cancel := context.WithTimeout(c.closing, commandTimeout)
	defer cancel()
	slow := time.AfterFunc(probeEvery, c.probe.want)
	defer slow.Stop()
	sent := time.Now()
	deadline := micros(c.health.clockAt(sent.Add(commandTimeout)))
	line := once{c.redis.Pipeline()}
	answers := make([]*redis.Cmd, len(commands))
	loaded := make(map[*redis.Script]bool)
	for i, cmd := range commands {
		if cmd.sent.IsZero() {
			cmd.sent = sent
		}
		script := cmp.Or(cmd.script, leaseScript)
		eval := script.EvalSha
		if load && !loaded[script] {
			eval, loaded[script] = script.Eval, true
		}
		args := append([]any{cmd.verb, c.id, cmd.key, c.channel, micros(leaseLasts), deadline, cmd.repeated}, cmd.args...)
		answers[i] = eval(ctx, line, c.keys(cmd.key), args...)
	}
	_, _ = line.Exec(ctx) // each answer has the error
	for i, cmd := range commands {
		v, failure := c.read(cmd, answers[i], sent)
		var refusal redis.Error
		switch {
		case failure == nil:
			cmd.finish(v, nil)
		case redis.HasErrorPrefix(failure, "NOSCRIPT"):
			unknown = append(unknown, cmd)
		case errors.As(failure, &refusal):
			c.failed(failure) // a server that refuses the commands is of no use
			cmd.finish(nil, failure)
		default:
			lost, err = append(lost, cmd), failure
		}
	}
	return unknown, lost, err
}

package redislease

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/robotsproxy/robotsproxy/ratelimit"
)

var (
	//go:embed lease.lua
	leaseSource string
	leaseScript = redis.NewScript(leaseSource)
)

// once is a pipeline that sends each command at most once. The client of a Cluster otherwise repeats a command when its
// connection breaks, although the server may have run it.
type once struct{ redis.Pipeliner }

func (o once) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return o.process(ctx, "eval", script, keys, args)
}

func (o once) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return o.process(ctx, "evalsha", sha, keys, args)
}

func (o once) process(ctx context.Context, name, script string, keys []string, args []any) *redis.Cmd {
	words := []any{name, script, len(keys)}
	for _, key := range keys {
		words = append(words, key)
	}
	cmd := redis.NewCmd(ctx, append(words, args...)...)
	cmd.SetFirstKeyPos(3)
	_ = o.Process(ctx, unrepeated{cmd})
	return cmd
}

// unrepeated is a command that go-redis does not repeat.
type unrepeated struct{ *redis.Cmd }

func (unrepeated) NoRetry() bool { return true }

// call runs c and waits for the answer. If askers calls wait already, it first waits for one of them to end. If heard is not
// nil, it is called with the answer before the next command of the lane is sent and before Close returns.
func (r *Client) call(c *command, heard func(reply)) (reply, error) {
	type answer struct {
		reply
		error
	}
	answered := make(chan answer, 1)
	c.done = func(v reply, err error) {
		if err == nil && heard != nil {
			heard(v)
		}
		answered <- answer{v, err}
	}
	r.asking <- struct{}{}
	defer func() { <-r.asking }()
	if r.isClosed() || !r.pipe(c.key).put(c) {
		return nil, errClosed
	}
	a := <-answered
	return a.reply, a.error
}

// read reads the answer to c, which was sent at sent. It takes in the parts that do not concern the lane: the clock, and
// since when Redis remembers.
func (r *Client) read(c *command, cmd *redis.Cmd, sent time.Time) (reply, error) {
	v, err := cmd.Slice()
	if err == nil && len(v) < 4 {
		err = errors.New("the script answered less than it should")
	}
	if err != nil {
		return nil, fmt.Errorf("redislease: asking Redis to %s %s: %w", c.verb, c.key, err)
	}
	answer, now := reply(v), time.Now()
	r.health.hears(answer.duration(len(v)-2), sent, now)
	r.remembers(answer.number(len(v)-1), now)
	if answer.number(len(v)-3) != 0 {
		r.corrupt.Add(1)
		r.forgetful.Store(true)
		r.log.Warn("a lane in Redis held what cannot be, or was forgotten, and was reset", "key", c.key)
	}
	return answer, nil
}

// oneSlot follows the prefix in the name of each key and channel. The text in braces selects the slot of a Cluster, so one
// node has all keys.
const oneSlot = "{lanes}:"

// keys returns the names of the keys of one lane, then that of the key which says since when Redis remembers. If key is not
// a host name, its hash stands for it.
func (r *Client) keys(key string) []string {
	if key == "" || len(key) > 255 || strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c > '~' }) {
		sum := sha256.Sum256([]byte(key))
		key = "sha256-" + hex.EncodeToString(sum[:])
	}
	all := r.prefix + oneSlot
	lane := all + key + ":"
	return []string{lane + "lane", lane + "held", lane + "line", lane + "order", lane + "crowd", lane + "heard", all + "memory"}
}

// micros is how durations are written in scripts: rounded up, since a Delay of a third of a second may not become shorter.
func micros(d time.Duration) int64 {
	n := d.Microseconds()
	if d > time.Duration(n)*time.Microsecond {
		n++
	}
	return n
}

// A reply is what a script answered: numbers and texts. What is of another type counts as zero.
type reply []any

func (v reply) number(i int) int64 {
	n, _ := v[i].(int64)
	return n
}

func (v reply) text(i int) string {
	s, _ := v[i].(string)
	return s
}

func (v reply) duration(i int) time.Duration { return time.Duration(v.number(i)) * time.Microsecond }

// source reads why a lane is paused.
func (v reply) source(i int) ratelimit.Source {
	if ratelimit.Source(v.text(i)) == ratelimit.RetryAfter {
		return ratelimit.RetryAfter
	}
	return ratelimit.Backoff
}

// numbers reads a list of numbers.
func (v reply) numbers(i int) []int {
	list, _ := v[i].([]any)
	numbers := make([]int, len(list))
	for j := range list {
		numbers[j] = int(reply(list).number(j))
	}
	return numbers
}

// order reads three values: stop, floor, until.
func (v reply) order(i int) ratelimit.Override {
	o := ratelimit.Override{Stop: v.number(i) == 1, Floor: v.duration(i + 1)}
	if until := v.number(i + 2); until > 0 {
		o.Until = time.UnixMicro(until)
	}
	return o
}

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
	//go:embed common.lua
	commonSource string
	//go:embed lease.lua
	leaseSource string
	//go:embed backoff.lua
	backoffSource string
	//go:embed override.lua
	overrideSource string

	leaseScript    = redis.NewScript(commonSource + leaseSource)
	backoffScript  = redis.NewScript(commonSource + backoffSource)
	overrideScript = redis.NewScript(commonSource + overrideSource)
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

// call runs cmd and waits for the answer. If maxCalls calls wait already, it first waits for one of them to end. It
// sets cmd.done. The pipe calls cmd.heard before it sends the next command of the lane, and before Close returns.
func (c *Client) call(cmd *command) (reply, error) {
	type answer struct {
		reply
		error
	}
	answered := make(chan answer, 1)
	cmd.done = func(v reply, err error) { answered <- answer{v, err} }
	c.calls <- struct{}{}
	defer func() { <-c.calls }()
	if c.isClosed() || !c.pipe(cmd.key).put(cmd) {
		return nil, errClosed
	}
	a := <-answered
	return a.reply, a.error
}

// read reads the answer to cmd, which was sent at sent. It takes the parts that do not concern the lane: the clock, and
// since when Redis remembers.
func (c *Client) read(cmd *command, answer *redis.Cmd, sent time.Time) (reply, error) {
	values, err := answer.Slice()
	if err == nil && len(values) < 5 {
		err = errors.New("the answer of the script is too short")
	}
	if err != nil {
		return nil, fmt.Errorf("redislease: asking Redis to %s %s: %w", cmd.verb, cmd.key, err)
	}
	v, now := reply(values), time.Now()
	c.health.setClock(v.duration(len(v)-2), sent, now)
	c.setMemory(v.number(len(v)-1), now)
	if v.number(len(v)-3) != 0 {
		c.corrupt.Add(1)
		c.reset.Store(true)
		c.log.Warn("a lane in Redis held an invalid value, or was forgotten, and was reset", "key", cmd.key)
	}
	return v, nil
}

// hashTag follows the prefix in the name of each key and channel. The text in braces selects the hash slot of a
// Cluster, so one node has all keys.
const hashTag = "{lanes}:"

// keys returns the names of the keys of one lane, in the order of common.lua. If key is not a host name, its hash
// replaces it.
func (c *Client) keys(key string) []string {
	if key == "" || len(key) > 255 || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		sum := sha256.Sum256([]byte(key))
		key = "sha256-" + hex.EncodeToString(sum[:])
	}
	all := c.prefix + hashTag
	lane := all + key + ":"
	return []string{
		lane + "lane", lane + "held", lane + "line", lane + "order", lane + "crowd", lane + "heard", all + "memory",
	}
}

// micros returns d in microseconds, as the scripts take it. It rounds up, so that no Delay becomes shorter.
func micros(d time.Duration) int64 {
	n := d.Microseconds()
	if d > time.Duration(n)*time.Microsecond {
		n++
	}
	return n
}

// A reply is the answer of a script: numbers, texts and lists. A value of another type counts as zero.
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

// override reads three values: stop, floor, until.
func (v reply) override(i int) ratelimit.Override {
	o := ratelimit.Override{Stop: v.number(i) == 1, Floor: v.duration(i + 1)}
	if until := v.number(i + 2); until > 0 {
		o.Until = time.UnixMicro(until)
	}
	return o
}

package redislease

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Values keeps values that instances share under names, for a while, and claims on names. Its methods return an error at
// once while Redis is down. It has connections of its own, so that no lease waits for a value, and its errors do not
// count as an outage, since a Redis without room for values can still pace.
type Values struct {
	client *Client
	redis  redis.UniversalClient
	turns  chan struct{} // holds a value for each call
}

func newValues(c *Client, url string) (*Values, error) {
	own, err := dial(url, nil)
	return &Values{client: c, redis: own, turns: make(chan struct{}, poolSize)}, err
}

// Values returns the values in the Redis of c. They are closed with c.
func (c *Client) Values() *Values { return c.values }

func (v *Values) key(name string) string { return v.client.prefix + hashTag + "value:" + name }

func (v *Values) claimKey(name string) string { return v.client.prefix + hashTag + "claim:" + name }

func (v *Values) channel() string { return v.client.prefix + hashTag + "values" }

// do calls f, when it is its turn, with the time-out of a command.
func (v *Values) do(ctx context.Context, act, name string, f func(context.Context) error) error {
	select {
	case v.turns <- struct{}{}:
		defer func() { <-v.turns }()
	case <-ctx.Done():
		return fmt.Errorf("redislease: %s %s: %w", act, name, ctx.Err())
	}
	err := v.client.health.down()
	if err == nil {
		limited, cancel := context.WithTimeout(ctx, commandTimeout)
		defer cancel()
		err = f(limited)
	}
	if err != nil {
		return fmt.Errorf("redislease: %s %s: %w", act, name, err)
	}
	return nil
}

// Get returns the value of name, or nil if there is none.
func (v *Values) Get(ctx context.Context, name string) (value []byte, err error) {
	err = v.do(ctx, "reading", name, func(ctx context.Context) error {
		value, err = data(v.redis.HGet(ctx, v.key(name), "data"))
		return err
	})
	return value, err
}

// data returns the value in an answer. One of another type does not count.
func data(answer *redis.StringCmd) ([]byte, error) {
	value, err := answer.Bytes()
	if errors.Is(err, redis.Nil) || redis.HasErrorPrefix(err, "WRONGTYPE") {
		return nil, nil
	}
	return value, err
}

// putScript replaces neither a value of the same version nor one of a later version, unless that is in the future. It
// leaves a quarter of the memory of the server to the lanes.
var putScript = redis.NewScript(`local type = redis.call('TYPE', KEYS[1]).ok
if type ~= 'hash' and type ~= 'none' then redis.call('DEL', KEYS[1]) end
local version, now = tonumber(redis.call('HGET', KEYS[1], 'version') or 0) or 0, redis.call('TIME')
if version >= tonumber(ARGV[1]) and version < (now[1] + 3600) * 1000000 then return 0 end
local memory = redis.call('INFO', 'memory')
local used, most = string.match(memory, 'used_memory:(%d+)'), string.match(memory, 'maxmemory:(%d+)')
if most and tonumber(most) > 0 and tonumber(used) > tonumber(most) * 3 / 4 then return 0 end
redis.call('HSET', KEYS[1], 'version', ARGV[1], 'data', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PUBLISH', ARGV[4], ARGV[5])
return 1`)

// Put stores data under name, until lasts has passed, and sends notice. It does nothing if that version or a later one is
// stored, or if Redis has used three quarters of its maxmemory. A version is a time in microseconds.
func (v *Values) Put(ctx context.Context, name string, version int64, data []byte, lasts time.Duration, notice string) error {
	return v.do(ctx, "storing", name, func(ctx context.Context) error {
		args := []any{version, data, max(1, lasts.Milliseconds()), v.channel(), notice}
		return putScript.Run(ctx, v.redis, []string{v.key(name)}, args...).Err()
	})
}

var deleteScript = redis.NewScript(`redis.call('DEL', KEYS[1])
return redis.call('PUBLISH', ARGV[1], ARGV[2])`)

// Delete removes the value of name, and sends notice.
func (v *Values) Delete(ctx context.Context, name, notice string) error {
	return v.do(ctx, "deleting", name, func(ctx context.Context) error {
		return deleteScript.Run(ctx, v.redis, []string{v.key(name)}, v.channel(), notice).Err()
	})
}

// Claims. One without an end, or of another type, does not count: no instance has made it.
var (
	claimScript = redis.NewScript(`local left = redis.call('PTTL', KEYS[1])
if redis.call('TYPE', KEYS[1]).ok ~= 'string' then redis.call('DEL', KEYS[1]) end
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] and left >= 0 then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1`)
	releaseScript = redis.NewScript(`if redis.call('TYPE', KEYS[1]).ok ~= 'string' then return 0 end
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])`)
)

// Claim claims name for holder, or prolongs its claim. It reports false if another holder has the claim. If there was no
// claim, it also returns the value of name, which is empty if there is none, and else nil.
func (v *Values) Claim(ctx context.Context, name, holder string, lasts time.Duration) (claimed bool, value []byte, err error) {
	err = v.do(ctx, "claiming", name, func(ctx context.Context) error {
		line := v.redis.Pipeline()
		fresh, kept := line.SetNX(ctx, v.claimKey(name), holder, lasts), line.HGet(ctx, v.key(name), "data")
		_, _ = line.Exec(ctx) // each answer has the error
		if claimed, err = fresh.Result(); err != nil {
			return err
		}
		if claimed {
			value, err = data(kept)
			value = append([]byte{}, value...) // not nil
			return err
		}
		claimed, err = claimScript.Run(ctx, v.redis, []string{v.claimKey(name)}, holder, lasts.Milliseconds()).Bool()
		return err
	})
	return claimed, value, err
}

// Release ends the claim of holder.
func (v *Values) Release(ctx context.Context, name, holder string) error {
	return v.do(ctx, "releasing", name, func(ctx context.Context) error {
		return releaseScript.Run(ctx, v.redis, []string{v.claimKey(name)}, holder).Err()
	})
}

// Claimed reports whether a holder has claimed name.
func (v *Values) Claimed(ctx context.Context, name string) (claimed bool, err error) {
	err = v.do(ctx, "asking for", name, func(ctx context.Context) error {
		left, err := v.redis.PTTL(ctx, v.claimKey(name)).Result()
		claimed = left > 0
		return err
	})
	return claimed, err
}

// Watch calls notice for each notice of any instance, also of this one, until ctx ends. It calls lost whenever it begins
// to hear notices, since it may have missed some before. The calls come one after the other.
func (v *Values) Watch(ctx context.Context, notice func(text string), lost func()) {
	messages := v.redis.Subscribe(ctx, v.channel())
	defer messages.Close()
	channel := messages.ChannelWithSubscriptions()
	for {
		select {
		case <-ctx.Done():
			return
		case m, open := <-channel:
			if !open {
				return
			}
			switch m := m.(type) {
			case *redis.Subscription:
				lost()
			case *redis.Message:
				notice(strings.Clone(m.Payload))
			}
		}
	}
}

package redislease

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Values keeps values that instances share under names, for a while, and claims on names. All methods return an error at
// once while Redis is down. An error of Values does not count as an outage, since a Redis without room can still pace.
type Values struct{ client *Client }

// Values returns the values in the Redis of c.
func (c *Client) Values() *Values { return &Values{c} }

// valuePatience is how long a call may take.
const valuePatience = commandTimeout

func (v *Values) key(name string) string { return v.client.prefix + hashTag + "value:" + name }

func (v *Values) claimKey(name string) string { return v.client.prefix + hashTag + "claim:" + name }

// do calls f unless Redis is down.
func (v *Values) do(ctx context.Context, act, name string, f func(context.Context) error) error {
	err := v.client.health.down()
	if err == nil {
		limited, cancel := context.WithTimeout(ctx, valuePatience)
		defer cancel()
		err = f(limited)
	}
	if err != nil {
		return fmt.Errorf("redislease: %s %s: %w", act, name, err)
	}
	return err
}

// Get returns the value of name, or nil if there is none.
func (v *Values) Get(ctx context.Context, name string) (value []byte, err error) {
	err = v.do(ctx, "reading", name, func(ctx context.Context) error {
		value, err = v.client.redis.HGet(ctx, v.key(name), "data").Bytes()
		if errors.Is(err, redis.Nil) || redis.HasErrorPrefix(err, "WRONGTYPE") {
			value, err = nil, nil
		}
		return err
	})
	return value, err
}

// putScript does not replace a value with a later version.
var putScript = redis.NewScript(`local type = redis.call('TYPE', KEYS[1]).ok
if type ~= 'hash' and type ~= 'none' then redis.call('DEL', KEYS[1]) end
local version = tonumber(redis.call('HGET', KEYS[1], 'version') or 0)
if version and version > tonumber(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], 'version', ARGV[1], 'data', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PUBLISH', ARGV[4], ARGV[5])
return 1`)

// Put stores data under name, until lasts has passed, and sends notice, unless a later version is stored.
func (v *Values) Put(ctx context.Context, name string, version int64, data []byte, lasts time.Duration, notice string) error {
	return v.do(ctx, "storing", name, func(ctx context.Context) error {
		args := []any{version, data, max(1, lasts.Milliseconds()), v.channel(), notice}
		return putScript.Run(ctx, v.client.redis, []string{v.key(name)}, args...).Err()
	})
}

// Delete removes the value of name, and sends notice.
func (v *Values) Delete(ctx context.Context, name, notice string) error {
	return v.do(ctx, "deleting", name, func(ctx context.Context) error {
		line := v.client.redis.Pipeline()
		line.Del(ctx, v.key(name))
		line.Publish(ctx, v.channel(), notice)
		_, err := line.Exec(ctx)
		return err
	})
}

var (
	claimScript = redis.NewScript(`local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1`)
	releaseScript = redis.NewScript(`if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])`)
)

// Claim claims name for holder, or prolongs its claim. It reports false if another holder has the claim.
func (v *Values) Claim(ctx context.Context, name, holder string, lasts time.Duration) (claimed bool, err error) {
	err = v.do(ctx, "claiming", name, func(ctx context.Context) error {
		if claimed, err = v.client.redis.SetNX(ctx, v.claimKey(name), holder, lasts).Result(); err != nil || claimed {
			return err
		}
		claimed, err = claimScript.Run(ctx, v.client.redis, []string{v.claimKey(name)}, holder, lasts.Milliseconds()).Bool()
		return err
	})
	return claimed, err
}

// Release ends the claim of holder.
func (v *Values) Release(ctx context.Context, name, holder string) error {
	return v.do(ctx, "releasing", name, func(ctx context.Context) error {
		return releaseScript.Run(ctx, v.client.redis, []string{v.claimKey(name)}, holder).Err()
	})
}

// Claimed reports whether a holder has claimed name.
func (v *Values) Claimed(ctx context.Context, name string) (claimed bool, err error) {
	err = v.do(ctx, "asking for", name, func(ctx context.Context) error {
		n, err := v.client.redis.Exists(ctx, v.claimKey(name)).Result()
		claimed = n > 0
		return err
	})
	return claimed, err
}

func (v *Values) channel() string { return v.client.prefix + hashTag + "values" }

// Watch calls notice for each notice of any instance, also of this one, until ctx ends, and lost after a time in which it
// may have missed some. The calls come one after the other.
func (v *Values) Watch(ctx context.Context, notice func(text string), lost func()) {
	messages := v.client.redis.Subscribe(ctx, v.channel())
	defer messages.Close()
	begun := false
	for m := range receive(ctx, messages) {
		switch m := m.(type) {
		case *redis.Subscription:
			if begun {
				lost()
			}
			begun = true
		case *redis.Message:
			notice(strings.Clone(m.Payload))
		}
	}
}

// receive yields the messages of a subscription, and a *redis.Subscription each time that it was made, until ctx ends.
func receive(ctx context.Context, messages *redis.PubSub) func(yield func(any) bool) {
	return func(yield func(any) bool) {
		channel := messages.ChannelWithSubscriptions()
		for {
			select {
			case <-ctx.Done():
				return
			case m, open := <-channel:
				if !open || !yield(m) {
					return
				}
			}
		}
	}
}

package redislease

import (
	"context"
	"fmt"
	"strconv"
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

// A version is a time. Redis keeps it in microseconds of its own clock, so that it does not matter if the clocks of the
// instances differ.

// skew returns by how much the clock of Redis is ahead of the clock of this machine, in whole seconds: it is 0 if both
// are in step, and versions are exact then.
func (v *Values) skew() time.Duration {
	now := time.Now()
	return (v.client.health.clockAt(now) - time.Duration(now.UnixNano())).Round(time.Second)
}

// version returns t as Redis keeps it.
func (v *Values) version(t time.Time) int64 { return t.Add(v.skew()).UnixMicro() }

// value returns the version and the data in an answer of readSource. The data is not nil.
func (v *Values) value(answer reply) (version time.Time, data []byte) {
	micros, err := strconv.ParseInt(answer.text(0), 10, 64)
	if err != nil {
		return time.Time{}, []byte{}
	}
	return time.UnixMicro(micros).Add(-v.skew()).UTC(), []byte(answer.text(1))
}

// storedSource is a function that returns the version of a value, or nil if there is none. A value of another type does not
// count. Nor does a version that is more than a minute in the future: it is damaged, or the clock of Redis was set.
const storedSource = `local function stored(key)
	local type = redis.call('TYPE', key).ok
	if type ~= 'hash' and type ~= 'none' then redis.call('DEL', key) end
	local version = tonumber(redis.call('HGET', key, 'version') or nil)
	if version and version < (redis.call('TIME')[1] + 60) * 1000000 then return version end
end
`

// readSource is a function that returns the version and the data of a value.
const readSource = storedSource + `local function read(key)
	local version = stored(key)
	if not version then return {'', ''} end
	return {string.format('%.0f', version), redis.call('HGET', key, 'data') or ''}
end
`

var getScript = redis.NewScript(readSource + `return read(KEYS[1])`)

// Get returns the version and the data of name. The version is zero if nothing is known of name. There is no data if that of
// this version and of those before it does not count.
func (v *Values) Get(ctx context.Context, name string) (version time.Time, data []byte, err error) {
	err = v.do(ctx, "reading", name, func(ctx context.Context) error {
		answer, err := getScript.Run(ctx, v.redis, []string{v.key(name)}).Slice()
		if err != nil {
			return err
		}
		version, data = v.value(answer)
		return nil
	})
	return version, data, err
}

// putScript leaves a quarter of the memory of the server to the lanes. A value lasts as long as those before it, since
// instances may have copies of them. To remove the data needs no memory.
var putScript = redis.NewScript(storedSource + `local last, version = stored(KEYS[1]), tonumber(ARGV[1])
if last and last >= version then return 0 end
local memory = redis.call('INFO', 'memory')
local used, most = string.match(memory, 'used_memory:(%d+)'), string.match(memory, 'maxmemory:(%d+)')
local full = most and tonumber(most) > 0 and tonumber(used) > tonumber(most) * 3 / 4
if ARGV[2] ~= '' and not full then
	local left = redis.call('PTTL', KEYS[1])
	redis.call('HSET', KEYS[1], 'version', ARGV[1], 'data', ARGV[2])
	redis.call('PEXPIRE', KEYS[1], math.max(left, ARGV[3]))
elseif redis.call('HDEL', KEYS[1], 'data') == 1 then
	redis.pcall('HSET', KEYS[1], 'version', math.max((last or 0) + 1, version - 1000000))
else
	return 0
end
redis.call('PUBLISH', ARGV[4], ARGV[5])
return 1`)

// Put stores data as this version of name, for lasts at least, and sends notice. It does nothing if this version or a later
// one is stored. If data is empty, or if Redis has used three quarters of its maxmemory, it removes the data of the older
// version; then the version stored is up to a second earlier than this one.
func (v *Values) Put(ctx context.Context, name string, version time.Time, data []byte, lasts time.Duration, notice string) error {
	return v.do(ctx, "storing", name, func(ctx context.Context) error {
		args := []any{v.version(version), data, max(1, lasts.Milliseconds()), v.channel(), notice}
		return putScript.Run(ctx, v.redis, []string{v.key(name)}, args...).Err()
	})
}

var deleteScript = redis.NewScript(storedSource + `local last = stored(KEYS[1])
redis.call('HDEL', KEYS[1], 'data')
redis.call('HSET', KEYS[1], 'version', math.max((last or 0) + 1, ARGV[1]))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('PUBLISH', ARGV[3], ARGV[4])`)

// Delete removes the data of name, and sends notice. For lasts no version from before now can be stored.
func (v *Values) Delete(ctx context.Context, name string, lasts time.Duration, notice string) error {
	return v.do(ctx, "deleting", name, func(ctx context.Context) error {
		args := []any{v.version(time.Now()), lasts.Milliseconds(), v.channel(), notice}
		return deleteScript.Run(ctx, v.redis, []string{v.key(name)}, args...).Err()
	})
}

// Claims. One without an end, or of another type, does not count: no instance has made it.
var (
	claimScript = redis.NewScript(readSource + `local left = redis.call('PTTL', KEYS[1])
if redis.call('TYPE', KEYS[1]).ok ~= 'string' then redis.call('DEL', KEYS[1]) end
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] and left >= 0 then return {0} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
if holder == ARGV[1] then return {1} end
return {1, unpack(read(KEYS[2]))}`)
	releaseScript = redis.NewScript(`if redis.call('TYPE', KEYS[1]).ok ~= 'string' then return 0 end
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])`)
)

// Claim claims name for holder, or prolongs its claim. It reports false if another holder has the claim. If it made the
// claim, it also returns what Get returns, and the data is not nil.
func (v *Values) Claim(
	ctx context.Context, name, holder string, lasts time.Duration,
) (claimed bool, version time.Time, data []byte, err error) {
	err = v.do(ctx, "claiming", name, func(ctx context.Context) error {
		keys := []string{v.claimKey(name), v.key(name)}
		answer, err := claimScript.Run(ctx, v.redis, keys, holder, lasts.Milliseconds()).Slice()
		if err != nil {
			return err
		}
		claimed = reply(answer).number(0) == 1
		if len(answer) > 1 {
			version, data = v.value(answer[1:])
		}
		return nil
	})
	return claimed, version, data, err
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

-- Who shares the lanes: KEYS[1] is a sorted set of instances by when they count as gone; KEYS[2] is as in lease.lua.
-- ARGV: instance, for how long it is here, in microseconds (0 is goodbye), channel. Returns the clock, the time from which
-- this server remembers, then the instances in order. An empty message to all, which means nothing, shows at once if the right to send
-- one is lacking.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local function text(n) return string.format('%.0f', n) end
local here = tonumber(ARGV[2])
redis.call('PUBLISH', ARGV[3], '')
local found = redis.call('TYPE', KEYS[1]).ok
if found ~= 'zset' and found ~= 'none' then redis.call('DEL', KEYS[1]) end
redis.call('ZADD', KEYS[1], text(now + here), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', text(now))
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. text(now + 60000000), '+inf') -- of a clock that was ahead
redis.call('PEXPIRE', KEYS[1], 60000)
found = redis.call('TYPE', KEYS[2]).ok
if found ~= 'hash' and found ~= 'none' then redis.call('DEL', KEYS[2]) end
local since = tonumber(redis.call('HGET', KEYS[2], 'since') or '')
if not since then
  since = now
  redis.call('HSET', KEYS[2], 'since', text(now))
end
redis.call('PEXPIRE', KEYS[2], 3600000)
local answer = redis.call('ZRANGE', KEYS[1], 0, -1)
table.sort(answer)
table.insert(answer, 1, now)
table.insert(answer, 2, since)
return answer

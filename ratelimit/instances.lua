-- Who shares the lanes: KEYS[1] is a sorted set of instances by when they count as gone.
-- ARGV: instance, for how long it is here, in microseconds (0 is goodbye), channel. Returns the clock, then the instances in
-- order. An empty message to all, which means nothing, shows at once if the right to send one is lacking.
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
local answer = redis.call('ZRANGE', KEYS[1], 0, -1)
table.sort(answer)
table.insert(answer, 1, now)
return answer

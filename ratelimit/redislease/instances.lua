-- A heartbeat of one instance.
--
-- KEYS[1]  sorted set: the instances, by the time at which each counts as gone
-- KEYS[2]  as KEYS[7] of common.lua
-- KEYS[3]  hash: the instances by their numbers
-- ARGV     instance, how long it lasts in microseconds (0: it leaves), channel, the number that it has or wants
--
-- It returns the time, since when this server remembers, the number of the instance, and the instances in order. It
-- publishes an empty message, which has no meaning, because a missing right to publish then shows at once.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local function text(n) return string.format('%.0f', n) end
local here = tonumber(ARGV[2])
redis.call('PUBLISH', ARGV[3], '')
for i, type in ipairs({ 'zset', 'hash', 'hash' }) do
  local found = redis.call('TYPE', KEYS[i]).ok
  if found ~= type and found ~= 'none' then redis.call('DEL', KEYS[i]) end
end
redis.call('ZADD', KEYS[1], text(now + here), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', text(now))
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. text(now + 60000000), '+inf') -- written while the clock was ahead
redis.call('PEXPIRE', KEYS[1], 60000)
local since = tonumber(redis.call('HGET', KEYS[2], 'since') or '')
if not since then
  since = now
  redis.call('HSET', KEYS[2], 'since', text(now))
end
redis.call('PEXPIRE', KEYS[2], 3600000)

-- The number is the first one from the wanted one that no other instance has.
local wanted, numbers = tonumber(ARGV[4]), 1024
local number = wanted
for i = 0, numbers - 1 do
  local n = (wanted + i) % numbers
  local holder = redis.call('HGET', KEYS[3], text(n))
  if not holder or holder == ARGV[1] or not redis.call('ZSCORE', KEYS[1], holder) then
    redis.call('HSET', KEYS[3], text(n), ARGV[1])
    number = n
    break
  end
end
redis.call('PEXPIRE', KEYS[3], 60000)

local answer = redis.call('ZRANGE', KEYS[1], 0, -1)
table.sort(answer)
table.insert(answer, 1, now)
table.insert(answer, 2, since)
table.insert(answer, 3, number)
return answer

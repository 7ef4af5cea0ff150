-- The beginning of lease.lua, backoff.lua and override.lua. One call runs one verb on one lane.
--
-- Times are in microseconds of this server's clock, durations in microseconds. No other clock counts.
--
-- KEYS[1]  hash, the lane:
--            mark     when a request last started or ended
--            start    when a request last started
--            seq      number of the last lease: its fencing token
--            fence    number of the last lease that was not cancelled
--            mark0, start0, fence0: the values before the last lease, which its cancel restores
--            opened   when a lease was last given back or expired
--            paused   the time before which nothing starts
--            why      the source of the pause: retry-after or backoff
--            began    when the last pause began
--            streak   how many pauses of the curve have followed one another
-- KEYS[2]  sorted set: the leases that are held, by the time at which they expire
-- KEYS[3]  sorted set: the instances that wait, by the time at which they came
-- KEYS[4]  hash: the last override (stop, floor, until; all 0 for a lift) and when it was set (at)
-- KEYS[5]  hash: how many requests wait in each instance, and when it said so
-- KEYS[6]  sorted set: recent answers of 429 and 503 that began no pause, by the time at which they came
-- KEYS[7]  hash: since, the time from which this server remembers. A server that has lost its memory has another value.
--          The heartbeats of the instances keep this key. document, the number of the document's revision: see
--          document.lua.
-- ARGV     verb, instance, key, channel, how long a lease lasts, until when the caller waits (0: unknown), 1 if this
--          call may have run before, and the arguments of the verb
local lane, held, line, override, crowd, heard, memory = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local verb, instance, key, channel, lasts = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local deadline, repeated = tonumber(ARGV[6]), ARGV[7] == '1'

local grace = 1000000 -- how far the clocks of two servers may be apart, after a failover
local minute = 60000000
local remember = minute -- how long a lane is kept beyond its delay

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local corrupt = 0 -- 1: a value was reset
local verbs = {}

local function text(n) return string.format('%.0f', n) end
local function set(field, n) redis.call('HSET', lane, field, text(n)) end

-- keep makes a key live for duration. It never shortens its life.
local function keep(name, duration)
  local ms = math.ceil(duration / 1000)
  if redis.call('PTTL', name) < ms then redis.call('PEXPIRE', name, text(ms)) end
end

-- check removes a key of another type than the given one, and returns true if it removed none.
local function check(name, type)
  local found = redis.call('TYPE', name).ok
  if found == type or found == 'none' then return true end
  redis.call('DEL', name)
  corrupt = 1
end

-- stored has the fields of the lane as they were at the beginning of the call.
local stored = {}

-- read reads the fields of the lane.
local function read()
  local names = { 'mark', 'start', 'seq', 'fence', 'opened', 'paused', 'mark0', 'start0', 'fence0', 'began', 'streak' }
  for i, v in ipairs(redis.call('HMGET', lane, unpack(names))) do stored[names[i]] = v end
end

-- time returns a field of the lane, 0 if there is none. A value other than a number from 0 to latest (NaN is none) is
-- reset to now.
local function time(field, latest)
  local v = stored[field]
  if not v then return 0 end
  local n = tonumber(v)
  if n and n >= 0 and n <= latest then return n end
  corrupt = 1
  set(field, now)
  return now
end

if not check(lane, 'hash') then
  set('mark', now) -- the lane was in use, so a delay from now is safe
  set('start', now)
end
read()
check(memory, 'hash')

local known = redis.call('HMGET', memory, 'since', 'document')
local since, document = tonumber(known[1] or ''), tonumber(known[2] or '') or 0
if not since then
  since = now
  redis.call('HSET', memory, 'since', text(now))
  keep(memory, 60 * minute)
end

local paused = time('paused', now + 48 * 60 * minute) -- twice the longest Retry-After that an instance obeys

-- overdue reports whether the caller has stopped waiting for this answer, for example because the server hung.
local function overdue() return deadline > 0 and now > deadline end

-- cause returns why the lane is paused, '' if it is not.
local function cause() return paused > now and redis.call('HGET', lane, 'why') or '' end

-- wake tells the instances to ask again. If always is not set, it does so only if an instance waits. A message may be
-- lost: an instance that waits asks again later in any case.
local function wake(always)
  if always or redis.call('ZCARD', line) > 0 then redis.call('PUBLISH', channel, key) end
end

-- valid returns v, a field of the override, or 0 if there is none. A value other than a number from 0 to most is reset
-- to 0.
local function valid(field, v, most)
  local n = tonumber(v or 0)
  if n and n >= 0 and n <= most then return n end
  corrupt = 1
  redis.call('HSET', override, field, '0')
  return 0
end

-- set_at returns when the override was set.
local function set_at() return valid('at', redis.call('HGET', override, 'at'), 2 ^ 53) end

-- store stores an override that was set at the time at, for life milliseconds.
local function store(at, stop, floor, ends, life)
  redis.call('HSET', override, 'stop', stop, 'floor', floor, 'until', ends, 'at', at)
  redis.call('PEXPIRE', override, life)
end

-- remind takes the last override that the caller knows. If it is newer than the one here, this server has forgotten it;
-- remind stores it and returns true.
local function remind(at, stop, floor, ends, life)
  if tonumber(at) <= set_at() then return false end
  store(at, stop, floor, ends, life)
  corrupt = 1
  return true
end

-- run runs the verb. Every answer ends with the number of the document's revision, whether a value was reset, the
-- time, and since when this server remembers.
local function run()
  local answer = { verbs[verb](unpack(ARGV, 8)) }
  answer[#answer + 1] = document
  answer[#answer + 1] = corrupt
  answer[#answer + 1] = now
  answer[#answer + 1] = since
  return answer
end

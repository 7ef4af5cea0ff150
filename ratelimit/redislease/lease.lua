-- The pace of one lane that several instances share. Each call is one verb, and redis.go is the only caller.
--
-- Every moment is in microseconds of this server's clock, and every duration in microseconds. No other clock counts.
--
-- KEYS[1]  hash: mark     when a request last started or ended
--                start    when one last started
--                seq      number of the last lease: the fencing token
--                fence    number of the last lease that was not cancelled
--                mark0, start0, fence0: as they were before the last lease, for its cancel
--                opened   when a lease was last given back or ran out
--                paused   before when nothing starts
--                why      it is paused: retry-after, or backoff
--                began    when the last pause was begun
--                streak   how far up the curve of pauses
-- KEYS[2]  sorted set: the leases that are held, by when they run out unless they are renewed
-- KEYS[3]  sorted set: the instances that wait, by when they came
-- KEYS[4]  hash: the operator's last order (stop, floor, until; all 0 for a lift), and when it was given (at); it expires by itself
-- KEYS[5]  hash: how many requests wait in each instance, and when it said so
-- KEYS[6]  sorted set: the answers of 429 and 503 that named no time and began no pause, by when they came
-- KEYS[7]  hash: since, the time from which this server remembers. If it has lost its memory, that is another time. The
--          beats of the instances keep the key alive.
-- ARGV     verb, instance, key, channel, how long a lease lasts, until when the answer is waited for (0: not known), what the verb needs
local lane, held, line, order, crowd, heard, memory = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local verb, instance, key, channel, lasts = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local late = tonumber(ARGV[6])

local grace = 1000000     -- how far clocks of two servers may be apart, over a failover
local patience = 100000   -- how late the first in the line may come before the next one's turn
local remember = 60000000 -- how long a lane is kept beyond its delay
local minute = 60000000

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local corrupt = 0

local function text(n) return string.format('%.0f', n) end
local function set(field, n) redis.call('HSET', lane, field, text(n)) end

-- keep makes a key outlive what it holds. It never shortens a life.
local function keep(name, duration)
  local ms = math.ceil(duration / 1000)
  if redis.call('PTTL', name) < ms then redis.call('PEXPIRE', name, text(ms)) end
end

-- sound removes a key that holds another type than ours.
local function sound(name, type)
  local found = redis.call('TYPE', name).ok
  if found == type or found == 'none' then return true end
  redis.call('DEL', name)
  corrupt = 1
end

-- moment reads a field of the lane. What is no number from 0 to latest (NaN is none) is taken for now, and set so.
local function moment(field, latest)
  local v = redis.call('HGET', lane, field)
  if not v then return 0 end
  local n = tonumber(v)
  if n and n >= 0 and n <= latest then return n end
  corrupt = 1
  set(field, now)
  return now
end

if not sound(lane, 'hash') then
  set('mark', now) -- it was in use, so a delay from now is safe
  set('start', now)
end
sound(held, 'zset')
sound(line, 'zset')
sound(order, 'hash')
sound(crowd, 'hash')
sound(memory, 'hash')

local reach = tonumber(redis.call('HGET', memory, 'since') or '')
if not reach then
  reach = now
  redis.call('HSET', memory, 'since', text(now))
  keep(memory, 60 * minute)
end

local mark = moment('mark', now + grace)
local start = moment('start', now + grace)
local opened = moment('opened', now + grace)
local seq = moment('seq', 2 ^ 52)
local fence = moment('fence', 2 ^ 52)
local paused = moment('paused', now + 48 * 3600 * 1000000) -- twice the longest that a site may ask for

-- overdue reports whether the instance has stopped waiting for this answer, as when a server that hung goes on.
local function overdue() return late > 0 and now > late end

-- ordered returns v, which a field of the order holds. What is no number from 0 to most is none, and set so.
local function ordered(field, v, most)
  local n = tonumber(v or 0)
  if n and n >= 0 and n <= most then return n end
  corrupt = 1
  redis.call('HSET', order, field, '0')
  return 0
end

-- wake tells the instances that wait that it is worth asking again. It is a hint: who misses it asks a little later.
local function wake(always)
  if always or redis.call('ZCARD', line) > 0 then redis.call('PUBLISH', channel, key) end
end

-- expire takes out the leases that ran out. Their holder is gone, and was there a renewal before the end at the latest:
-- a third of a lease's time after it was renewed. That is when its request ended.
local function expire()
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', held, '(' .. text(now + lasts + grace), '+inf')) do
    redis.call('ZADD', held, text(now + lasts), member)
    corrupt = 1
  end
  local ended = redis.call('ZREVRANGEBYSCORE', held, text(now), '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  if not ended then return end
  redis.call('ZREMRANGEBYSCORE', held, '-inf', text(now))
  mark = math.max(mark, tonumber(ended) - 2 * lasts / 3)
  opened = math.max(opened, tonumber(ended))
  set('mark', mark)
  set('opened', opened)
end

-- give makes the instance a holder. question is the number of the instance's question.
local function give(delay, question)
  seq = seq + 1
  local token = text(seq) .. ':' .. instance .. ':' .. question
  redis.call('HSET', lane, 'mark0', text(mark), 'start0', text(start), 'fence0', text(fence))
  redis.call('HSET', lane, 'mark', text(now), 'start', text(now), 'fence', text(seq), 'seq', text(seq))
  redis.call('ZADD', held, text(now + lasts), token)
  keep(lane, delay + lasts + remember)
  keep(held, lasts + remember)
  return token
end

-- turn gives the instance its place in the line, and returns how many stand before it.
local function turn(delay)
  redis.call('ZADD', line, 'NX', text(now), instance)
  keep(line, delay + lasts + remember)
  keep(lane, delay + lasts + remember)
  return redis.call('ZRANK', line, instance)
end

-- rivals notes that n requests wait in this instance, and returns how many do in each of the others. Who has said nothing
-- for so long that it must have asked again is gone.
local function rivals(n, delay)
  if n > 0 then
    redis.call('HSET', crowd, instance, text(n) .. ' ' .. text(now))
    keep(crowd, delay + remember)
  else
    redis.call('HDEL', crowd, instance)
  end
  local found, all = {}, redis.call('HGETALL', crowd)
  for i = 1, #all, 2 do
    local waiting, said = string.match(all[i + 1], '^(%d+) (%d+)$')
    if not waiting or math.abs(now - tonumber(said)) > delay + remember then
      redis.call('HDEL', crowd, all[i])
    elseif all[i] ~= instance then
      found[#found + 1] = tonumber(waiting)
    end
  end
  return found
end

-- recall is given the number of the last lease that the instance has seen. If that is not known here, this server has
-- forgotten the lane, and a request may have ended at this very moment.
local function recall(last)
  if last <= seq then return end
  seq, mark, start, corrupt = last, now, now, 1
  redis.call('HSET', lane, 'seq', text(seq), 'mark', text(now), 'start', text(now))
end

-- cause returns why the lane is paused; '' if it is not.
local function cause() return paused > now and redis.call('HGET', lane, 'why') or '' end

-- store keeps an order that was given at the moment at.
local function store(at, stop, floor, ends, life)
  redis.call('HSET', order, 'stop', stop, 'floor', floor, 'until', ends, 'at', at)
  redis.call('PEXPIRE', order, life)
end

-- remind is given the last order that the instance has heard of. If that is newer than the one here, this server has
-- forgotten it.
local function remind(at, stop, floor, ends, life)
  if tonumber(at) <= ordered('at', redis.call('HGET', order, 'at'), 2 ^ 53) then return false end
  store(at, stop, floor, ends, life)
  corrupt = 1
  return true
end

-- lease grants the right to send one request, if fewer than limit leases are held, the delay has passed since the mark
-- (or, where from is "start", since the last start), and nobody stands before the instance who came in time.
-- While the lane is stopped the wait is short, but not nothing: the stop may have ended by the clock of who asks.
-- It returns token, wait, gap (-1: unknown), rest of the pause, the order (stop, floor, until, at), the rivals, why the
-- lane is paused, and the number of the last lease.
local function lease(delay, limit, from, waiting, last, question)
  if overdue() then return '', -1, -1, 0, 0, 0, 0, 0, {}, '', 0 end -- a lease would block the lane for nothing
  recall(last)
  local word = redis.call('HMGET', order, 'stop', 'floor', 'until', 'at')
  local floor, ends = ordered('floor', word[2], 366 * 24 * 60 * minute), ordered('until', word[3], 2 ^ 53)
  local stop = ordered('stop', word[1], 1) == 1 and (ends == 0 or now < ends) and 1 or 0
  local at = ordered('at', word[4], 2 ^ 53)
  local granted = text(seq) .. ':' .. instance .. ':' .. question
  if redis.call('ZSCORE', held, granted) then -- the answer to this question was lost
    local before = moment(from == 'start' and 'start0' or 'mark0', now + grace)
    return granted, 0, before > 0 and math.max(0, start - before) or -1, 0, stop, floor, ends, at, rivals(waiting - 1, delay), cause(), seq
  end
  if floor > delay then delay, limit, from = floor, 1, 'mark' end
  expire()
  local since = from == 'start' and start or mark
  local gap = since > 0 and math.max(0, now - since) or -1
  local free = math.max(since + delay, paused)
  local n = redis.call('ZCARD', held)
  if n >= limit then
    free = math.max(free, tonumber(redis.call('ZRANGE', held, n - limit, n - limit, 'WITHSCORES')[2]))
  end
  local rest = math.max(0, paused - now)
  if stop == 1 then return '', patience, gap, rest, stop, floor, ends, at, {}, cause(), seq end
  local before = redis.call('ZRANK', line, instance) or redis.call('ZCARD', line)
  if n < limit and now >= free and now >= math.max(free, opened) + before * patience then
    redis.call('ZREMRANGEBYRANK', line, 0, before) -- with those before it, who slept
    local token = give(delay, question)
    if n + 1 < limit then wake() end -- the next one's turn has come
    return token, 0, gap, rest, stop, floor, ends, at, rivals(waiting - 1, delay), cause(), seq
  end
  before = turn(delay)
  return '', math.max(free, math.min(now, opened)) - now + before * patience, gap, rest, stop, floor, ends, at, rivals(waiting, delay), cause(), seq
end

-- known reports whether token may act: it is held, or this server has forgotten it, which is seen by its number, no
-- lower than that of the last lease of which use was made. A lease that ran out and after which another one was given may
-- not.
local function known(token)
  if redis.call('ZSCORE', held, token) then return true end
  local number = tonumber(string.match(token, '^%d+'))
  if not number or number < fence then return false end
  set('seq', math.max(seq, number))
  set('fence', number)
  mark = now
  set('mark', now)
  if start == 0 then set('start', now) end
  return true
end

local verbs = {}

function verbs.lease(delay, limit, from, waiting, last, question, at, stop, floor, ends, life)
  if at and at ~= '0' and not overdue() then remind(at, stop, floor, ends, life) end
  return lease(tonumber(delay), tonumber(limit), from, tonumber(waiting), tonumber(last), question)
end

-- renew makes a lease last from now. It returns -1 if it did nothing because it came too late.
function verbs.renew(token, delay)
  if overdue() then return -1 end
  if not known(token) then return 0 end
  redis.call('ZADD', held, text(now + lasts), token)
  keep(lane, tonumber(delay) + lasts + remember)
  keep(held, lasts + remember)
  return 1
end

-- adopt makes the instance a holder without conditions: its request was sent while it could not reach this server.
function verbs.adopt(delay, question)
  expire()
  return give(tonumber(delay), question)
end

-- done gives a lease back: its request has ended now.
verbs['end'] = function(token, delay)
  if not known(token) then return 0 end
  redis.call('ZREM', held, token)
  set('mark', math.max(mark, now))
  set('opened', now)
  keep(lane, tonumber(delay) + remember)
  wake()
  return 1
end

-- cancel gives a lease back of which no use was made. The marks go back too, unless something happened since.
function verbs.cancel(token)
  if redis.call('ZREM', held, token) == 0 then return 0 end
  if tonumber(string.match(token, '^%d+')) == seq and mark == start then
    set('mark', moment('mark0', now + grace))
    set('start', moment('start0', now + grace))
    set('fence', moment('fence0', 2 ^ 52))
  end
  set('opened', now)
  wake()
  return 1
end

-- leave gives up the instance's place in the line: nobody waits there any more.
function verbs.leave()
  redis.call('HDEL', crowd, instance)
  if redis.call('ZREM', line, instance) == 1 then wake() end
  return 1
end

-- sent says that a request was sent without a lease. A lease that is cancelled goes back no further than to here.
function verbs.sent(delay)
  redis.call('HSET', lane, 'mark', text(now), 'start', text(now), 'mark0', text(now), 'start0', text(now))
  keep(lane, tonumber(delay) + remember)
  return 1
end

-- pause lets nothing start for a while. The longest pause counts.
local function pause(duration, why)
  if now + duration > paused then
    paused = now + duration
    redis.call('HSET', lane, 'paused', text(paused), 'why', why)
  end
  set('began', now)
  keep(lane, paused - now + remember)
  wake(true)
  return paused - now
end

-- complain counts an answer to a request that client sent so long ago. Three within a minute, or of two clients, pause the
-- lane along the curve, as in backoff.go; if personal is 1, only those of two clients do. If told is not 0, the host named that
-- time. It returns the rest of the pause, how far up the curve that is, and why the lane is paused.
function verbs.complain(client, ago, streak, personal, told)
  if overdue() then return math.max(0, paused - now), tonumber(streak), cause() end
  local forgiven = 30 * minute
  local climbed = now - paused < forgiven and math.min(moment('streak', 60), 60) or 0
  streak = math.max(tonumber(streak), climbed)
  told = tonumber(told or 0)
  if told == 0 and now - tonumber(ago) < moment('began', now + grace) then return math.max(0, paused - now), streak, cause() end
  sound(heard, 'zset')
  redis.call('ZREMRANGEBYSCORE', heard, '-inf', '(' .. text(now - minute))
  local earlier, another = redis.call('ZRANGE', heard, 0, -1), false
  for _, member in ipairs(earlier) do
    another = another or string.match(member, '^%d+ (.*)$') ~= client
  end
  if not another and (#earlier < 2 or personal == '1') then
    if personal == '1' then redis.call('ZREMRANGEBYRANK', heard, 0, -3) end -- the last are enough
    redis.call('ZADD', heard, text(now), text(now) .. ' ' .. client)
    keep(heard, minute)
    return math.max(0, paused - now), streak, cause()
  end
  if told > 0 then return pause(told, 'retry-after'), streak, cause() end
  redis.call('DEL', heard)
  local rest = math.min(minute * 2 ^ streak, 60 * minute)
  set('streak', math.min(streak + 1, 60))
  keep(lane, rest + rest / 10 + forgiven)
  return pause(rest + rest / 10 * (now % 1000) / 1000, 'backoff'), streak + 1, cause()
end

-- tell pauses the lane if rest is not 0. If fresh is 1 it sets the operator's order, all 0 to lift the one before; else, if at
-- is not 0, it is reminded of the order that was given then. It returns the time of a fresh order, 0 for all others.
function verbs.tell(rest, why, fresh, at, stop, floor, ends, life)
  if tonumber(rest) > 0 then pause(tonumber(rest), why) end
  if fresh == '1' then
    local given = math.max(now, ordered('at', redis.call('HGET', order, 'at'), 2 ^ 53) + 1)
    store(text(given), stop, floor, ends, life)
    wake(true)
    return given
  end
  if at ~= '0' and remind(at, stop, floor, ends, life) then wake(true) end
  return 0
end

-- Each answer ends with what was found corrupt, the clock, and the time from which this server remembers.
local answer = { verbs[verb](unpack(ARGV, 7)) }
answer[#answer + 1] = corrupt
answer[#answer + 1] = now
answer[#answer + 1] = reach
return answer

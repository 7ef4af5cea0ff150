-- Leases of a lane. See common.lua.
local late = 100000 -- how long the first instance in the line may stay away before the turn of the next one

check(held, 'zset')
check(line, 'zset')
check(crowd, 'hash')
check(override, 'hash')

local mark = time('mark', now + grace)
local start = time('start', now + grace)
local opened = time('opened', now + grace)
local seq = time('seq', 2 ^ 52)
local fence = time('fence', 2 ^ 52)

-- kept reports whether an instance may keep a lease after its request has ended: see name.
local function kept(token) return string.match(token, ':kept$') end

-- used notes that requests may have been sent by a kept lease until at. A later cancel restores nothing from before.
local function used(at)
  mark, start = math.max(mark, at), math.max(start, at)
  redis.call('HSET', lane, 'mark', text(mark), 'start', text(start), 'mark0', text(mark), 'start0', text(start))
end

-- expire removes the leases that have expired. A holder that has gone renewed its lease last when it had two thirds of
-- its life left at least, or two fifths of one that it kept, so that is taken for the end of its request.
local function expire()
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', held, '(' .. text(now + lasts + grace), '+inf')) do
    redis.call('ZADD', held, text(now + lasts), member)
    corrupt = 1
  end
  local last = redis.call('ZREVRANGEBYSCORE', held, text(now), '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
  local token, ended = last[1], last[2]
  if not ended then return end
  redis.call('ZREMRANGEBYSCORE', held, '-inf', text(now))
  opened = math.max(opened, tonumber(ended))
  set('opened', opened)
  if kept(token) then
    used(tonumber(ended) - lasts * 2 / 5)
  else
    mark = math.max(mark, tonumber(ended) - lasts * 2 / 3)
    set('mark', mark)
  end
end

-- name returns the token of the last lease. question is the number of the instance's question. Instances may keep a
-- lease without a delay after its request has ended, and give it back if another instance wants it.
local function name(delay, question)
  return text(seq) .. ':' .. instance .. ':' .. question .. (delay == 0 and ':kept' or '')
end

-- grant gives the instance a lease.
local function grant(delay, question)
  seq = seq + 1
  local token = name(delay, question)
  redis.call('HSET', lane, 'mark0', text(mark), 'start0', text(start), 'fence0', text(fence))
  redis.call('HSET', lane, 'mark', text(now), 'start', text(now), 'fence', text(seq), 'seq', text(seq))
  redis.call('ZADD', held, text(now + lasts), token)
  keep(lane, delay + lasts + remember)
  keep(held, lasts + remember)
  return token
end

-- more gives the instance n further leases of a lane without a delay. The cancel of the last one leaves the others.
local function more(n, question)
  local tokens = ''
  for _ = 1, n do
    seq = seq + 1
    local token = name(0, question)
    redis.call('ZADD', held, text(now + lasts), token)
    tokens = tokens .. ' ' .. token
  end
  if n > 0 then
    redis.call('HSET', lane, 'fence', text(seq), 'seq', text(seq))
    redis.call('HSET', lane, 'mark0', text(now), 'start0', text(now), 'fence0', text(seq - 1))
  end
  return tokens
end

-- earlier returns the tokens that this question was granted before, if the answer was lost.
local function earlier(question)
  local found, mine = {}, ':' .. instance .. ':' .. question
  for _, token in ipairs(redis.call('ZRANGE', held, 0, -1)) do
    if string.match(token, '^%d+(:[^:]*:%d+)') == mine then found[#found + 1] = token end
  end
  return table.concat(found, ' ')
end

-- returned takes back leases that the instance has kept.
local function returned(tokens)
  if #tokens == 0 or redis.call('ZREM', held, unpack(tokens)) == 0 then return end
  used(now)
  opened = now
  set('opened', opened)
  wake()
end

-- want asks the other instances for the leases that they keep.
local function want()
  for _, token in ipairs(redis.call('ZRANGE', held, 0, -1)) do
    if kept(token) and string.match(token, '^%d+:([^:]*)') ~= instance then
      redis.call('PUBLISH', channel, 'want ' .. key)
      return
    end
  end
end

-- enqueue puts the instance in the line if it is not there, and returns how many instances stand before it.
local function enqueue(delay)
  redis.call('ZADD', line, 'NX', text(now), instance)
  keep(line, delay + lasts + remember)
  keep(lane, delay + lasts + remember)
  return redis.call('ZRANK', line, instance)
end

-- rivals stores that n requests wait in this instance, and returns how many wait in each of the others. An instance
-- that waits asks again, so one that has said nothing for longer than delay and a minute is gone.
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

-- recall takes the number of the last lease that the instance knows. If this server does not know it, it has forgotten
-- the lane, and a request may have ended just now.
local function recall(last)
  if last <= seq then return end
  seq, mark, start, corrupt = last, now, now, 1
  redis.call('HSET', lane, 'seq', text(seq), 'mark', text(now), 'start', text(now))
end

-- lease grants the right to send one request if fewer than limit leases are held, the delay has passed since the mark
-- (or the last start if from is "start"), and no instance stands before this one that comes in time. While the lane is
-- stopped the wait is short but not 0, since the stop may have ended by the caller's clock. It returns the token, the
-- wait, the gap (-1: unknown), the rest of the pause, the override (stop, floor, until, at), the rivals, why the lane
-- is paused, and the number of the last lease.
local function lease(delay, limit, from, waiting, last, question, places)
  if overdue() then return '', -1, -1, 0, 0, 0, 0, 0, {}, '', 0 end -- a lease would only block the lane
  recall(last)
  local fields = redis.call('HMGET', override, 'stop', 'floor', 'until', 'at')
  local floor, ends = valid('floor', fields[2], 366 * 24 * 60 * minute), valid('until', fields[3], 2 ^ 53)
  local stop = valid('stop', fields[1], 1) == 1 and (ends == 0 or now < ends) and 1 or 0
  local at = valid('at', fields[4], 2 ^ 53)
  local function answer(token, wait, gap, others)
    local rest = token == '' and math.max(0, paused - now) or 0
    return token, wait, gap, rest, stop, floor, ends, at, others, cause(), seq
  end
  local granted = repeated and earlier(question) or ''
  if granted ~= '' then
    local before = time(from == 'start' and 'start0' or 'mark0', now + grace)
    local gap = before > 0 and before < start and start - before or -1 -- of several leases it is not known
    return answer(granted, 0, gap, rivals(waiting - 1, delay))
  end
  if floor > delay then delay, limit, from = floor, 1, 'mark' end
  expire()
  local counted = from == 'start' and start or mark
  local gap = counted > 0 and math.max(0, now - counted) or -1
  local free = math.max(counted + delay, paused)
  local n = redis.call('ZCARD', held)
  if n >= limit then
    free = math.max(free, tonumber(redis.call('ZRANGE', held, n - limit, n - limit, 'WITHSCORES')[2]))
    want()
  end
  if stop == 1 then return answer('', late, gap, {}) end
  local before = redis.call('ZRANK', line, instance) or redis.call('ZCARD', line)
  if n < limit and now >= math.max(free, opened) + before * late then
    redis.call('ZREMRANGEBYRANK', line, 0, before) -- and those before it, which did not come
    local token = grant(delay, question)
    if n + 1 < limit then wake() end -- the next instance may start too
    local others = rivals(waiting - 1, delay)
    if delay == 0 and #others == 0 then
      token = token .. more(math.min(places - 1, math.floor((limit - n - 1) / 2)), question) -- half is for others
    end
    return answer(token, 0, gap, others)
  end
  before = enqueue(delay)
  local wait = math.max(free, math.min(now, opened)) - now + before * late
  return answer('', wait, gap, rivals(waiting, delay))
end

-- known reports whether token is valid: it is held, or this server has forgotten it. It has forgotten it if the number
-- of the token is no lower than that of the last lease that was used. A lease that expired before another one was
-- granted is not valid. Of leases without a delay several are in use, and an instance that does not know of the loss yet
-- may have been granted another; none has expired before this server has remembered for as long as a lease lasts.
local function known(token)
  if redis.call('ZSCORE', held, token) then return true end
  local number = tonumber(string.match(token, '^%d+'))
  local forgotten = kept(token) and now < since + lasts
  if not number or number < fence and not forgotten then return false end
  set('seq', math.max(seq, number))
  if not kept(token) then set('fence', number) end -- others without a delay may be in use beside it
  mark = now
  set('mark', now)
  if start == 0 then set('start', now) end
  return true
end

function verbs.lease(delay, limit, from, waiting, last, question, at, stop, floor, ends, life, places, ...)
  if at and at ~= '0' and not overdue() then remind(at, stop, floor, ends, life) end
  returned({ ... })
  return lease(tonumber(delay), tonumber(limit), from, tonumber(waiting), tonumber(last), question, tonumber(places or 1))
end

-- renew makes a lease last from now. It returns 0 if the lease is lost, and -1 if the renewal came too late.
function verbs.renew(token, delay)
  if overdue() then return -1 end
  if not known(token) then return 0 end
  redis.call('ZADD', held, text(now + lasts), token)
  keep(lane, tonumber(delay) + lasts + remember)
  keep(held, lasts + remember)
  return 1
end

-- adopt grants a lease unconditionally, for a request that was sent while the instance could not reach this server.
function verbs.adopt(delay, question)
  expire()
  return grant(tonumber(delay), question)
end

-- end gives back the lease of a request that has ended now. It returns 0 if the lease is lost.
verbs['end'] = function(token, delay)
  if not known(token) then return 0 end
  redis.call('ZREM', held, token)
  if kept(token) then used(now) else set('mark', math.max(mark, now)) end
  set('opened', now)
  keep(lane, tonumber(delay) + remember)
  wake()
  return 1
end

-- cancel gives back a lease that was not used. It restores the fields of the lane unless they have changed since. It
-- returns 0 if the lease is lost.
function verbs.cancel(token)
  if redis.call('ZREM', held, token) == 0 then return 0 end
  if tonumber(string.match(token, '^%d+')) == seq and mark == start then
    set('mark', time('mark0', now + grace))
    set('start', time('start0', now + grace))
    set('fence', time('fence0', 2 ^ 52))
  end
  set('opened', now)
  wake()
  return 1
end

-- leave takes the instance out of the line, since no request waits there.
function verbs.leave()
  redis.call('HDEL', crowd, instance)
  if redis.call('ZREM', line, instance) == 1 then wake() end
  return 1
end

-- sent notes that a request was sent, or has ended, without a lease. A later cancel restores nothing from before it.
function verbs.sent(delay)
  redis.call('HSET', lane, 'mark', text(now), 'start', text(now), 'mark0', text(now), 'start0', text(now))
  keep(lane, tonumber(delay) + remember)
  return 1
end

return run()

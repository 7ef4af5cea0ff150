-- Pauses of a lane. See common.lua.

-- pause lets nothing start for duration. The pause that ends last counts.
local function pause(duration, why)
  if now + duration > paused then
    paused = now + duration
    redis.call('HSET', lane, 'paused', text(paused), 'why', why)
  end
  set('began', now)
  keep(lane, paused - now + remember)
  wake(true)
end

-- rest returns how long the lane is paused.
local function rest() return math.max(0, paused - now) end

function verbs.pause(duration, why)
  if tonumber(duration) > 0 then pause(tonumber(duration), why) end
  return 1
end

-- throttle counts an answer of 429 or 503 to a request that client sent so long ago. Three within a minute, or one for
-- each of two clients, pause the lane along the curve, as in backoff.go. If personal is 1, only two clients do. If
-- asked is not 0, the host asked for a pause of that duration. It returns how long the lane is paused, the streak, and
-- why the lane is paused.
function verbs.throttle(client, ago, streak, personal, asked)
  streak = tonumber(streak)
  if overdue() then return rest(), streak, cause() end
  local forgiven = 30 * minute
  if now - paused < forgiven then streak = math.max(streak, math.min(time('streak', 60), 60)) end
  asked = tonumber(asked)
  if asked == 0 and now - tonumber(ago) < time('began', now + grace) then return rest(), streak, cause() end
  check(heard, 'zset')
  redis.call('ZREMRANGEBYSCORE', heard, '-inf', '(' .. text(now - minute))
  local earlier, another = redis.call('ZRANGE', heard, 0, -1), false
  for _, member in ipairs(earlier) do
    another = another or string.match(member, '^%d+ (.*)$') ~= client
  end
  if not another and (#earlier < 2 or personal == '1') then
    if personal == '1' then redis.call('ZREMRANGEBYRANK', heard, 0, -3) end -- the last two are enough
    redis.call('ZADD', heard, text(now), text(now) .. ' ' .. client)
    keep(heard, minute)
    return rest(), streak, cause()
  end
  if asked > 0 then
    pause(asked, 'retry-after')
    return rest(), streak, cause()
  end
  redis.call('DEL', heard)
  local curve = math.min(minute * 2 ^ streak, 60 * minute)
  set('streak', math.min(streak + 1, 60))
  keep(lane, curve + curve / 10 + forgiven)
  pause(curve + curve / 10 * (now % 1000) / 1000, 'backoff')
  return rest(), streak + 1, cause()
end

return run()

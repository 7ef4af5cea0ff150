-- The document that all instances have, and the instances that have it.
--
-- KEYS[1]  hash, the document: revision (a number, ':' and the instance that wrote it) and data
-- KEYS[2]  hash: for each instance the number of the revision that it has applied, when it said so, its home and its
--          name. An instance that leaves is removed. One that ends without that remains for ten minutes, so that it
--          counts as missing.
-- KEYS[3]  as KEYS[7] of common.lua
-- ARGV     verb, instance, channel, and the arguments of the verb
local document, instances, memory = KEYS[1], KEYS[2], KEYS[3]
local verb, instance, channel = ARGV[1], ARGV[2], ARGV[3]

local second = 1000000
local replaced = 8 * second -- an instance that is silent for this long is gone if another one has its home
local gone = 600 * second -- an instance that is silent for this long is gone
local clock = redis.call('TIME')
local now = clock[1] * second + clock[2]
local verbs = {}

local function text(n) return string.format('%.0f', n) end
local function number(revision) return tonumber(string.match(revision, '^%d+')) or 0 end

for i = 1, 3 do
  local found = redis.call('TYPE', KEYS[i]).ok
  if found ~= 'hash' and found ~= 'none' then redis.call('DEL', KEYS[i]) end
end

-- present returns the instances: id, number of the revision, silence in microseconds, and name of each.
local function present(home)
  local found, all = {}, redis.call('HGETALL', instances)
  for i = 1, #all, 2 do
    local n, said, lives, name = string.match(all[i + 1], '^(%d+) (%d+) (%S+) (.*)$')
    local silent = n and math.max(0, now - tonumber(said))
    local ahead = n and tonumber(said) - now > replaced -- written before the clock stepped back
    if not n or ahead or silent > gone or (lives == home and silent > replaced) then
      redis.call('HDEL', instances, all[i])
    else
      found[#found + 1] = { all[i], tonumber(n), silent, name }
    end
  end
  return found
end

-- sync notes that this instance has applied the revision known. It returns the revision that is here, its data if it
-- is another one, and the instances.
function verbs.sync(known, home, name)
  redis.call('HSET', instances, instance, text(number(known)) .. ' ' .. text(now) .. ' ' .. home .. ' ' .. name)
  redis.call('PEXPIRE', instances, 3600000)
  local revision = redis.call('HGET', document, 'revision') or ''
  local data = ''
  if revision ~= '' then
    redis.call('PEXPIRE', document, 31536000000)
    redis.call('HSET', memory, 'document', text(number(revision)))
  end
  if revision ~= known then data = redis.call('HGET', document, 'data') or '' end
  return { revision, data, present(home) }
end

-- write stores a revision if the one before it is here, and returns 1 if it is. It tells the other instances.
function verbs.write(before, revision, data)
  if (redis.call('HGET', document, 'revision') or '') ~= before then return 0 end
  redis.call('HSET', document, 'revision', revision, 'data', data)
  redis.call('PEXPIRE', document, 31536000000)
  redis.call('HSET', memory, 'document', text(number(revision)))
  redis.call('PUBLISH', channel, revision)
  return 1
end

-- leave removes this instance.
function verbs.leave() return redis.call('HDEL', instances, instance) end

return verbs[verb](unpack(ARGV, 4))

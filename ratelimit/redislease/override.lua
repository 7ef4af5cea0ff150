-- Overrides of a lane by the operator. See common.lua.
check(override, 'hash')

-- set stores a new override, in place of the last one. It returns its time, which is later than that of the last one.
function verbs.set(stop, floor, ends, life)
  local at = math.max(now, set_at() + 1)
  store(text(at), stop, floor, ends, life)
  wake(true)
  return at
end

-- remind takes the last override that the caller knows, in case this server has forgotten it.
function verbs.remind(at, stop, floor, ends, life)
  if remind(at, stop, floor, ends, life) then wake(true) end
  return 0
end

return run()

-- Shared by the scripts that can find the name free; it is put in front of each of them.
--
-- KEYS: 1 record, 2 last token, 3 queue, 4 places, 5 processes
--
-- Invariants
--   * The record is written in one place, grant, and only where there is none: NX, even though the caller has looked.
--   * A token is higher than every one before it of the same name: than the last on record, and than the server's time.
--   * Nothing is written without an expiry.
--   * Whoever is taken out of the queue alive is granted the name in the same script. ZPOPMIN comes first: it is allowed on
--     a full server, and once a script has written, the server lets the rest of it through. So nobody is popped in vain.

local retention = 86400000 -- ms that the last token outlives its lease
local longest_claim = 3000 -- ms that a lease which was handed over runs until its first renewal: lease.MaxClaimTTL

-- micros is the server's time. It is exact in a double until the year 2255.
local function micros()
  local now = redis.call('TIME')
  return now[1] * 1000000 + now[2]
end

-- parse splits a record. All four are nil if something else is stored under the key.
local function parse(record)
  return string.match(record, '^(%d+) (%S+) (%S+) (.*)$')
end

-- parse_last splits the last token on record, which is false if there is none, and returns it as a number and whether anybody
-- may be waiting. The mark spares every acquire and release the look into a queue that is nearly always empty.
local function parse_last(last)
  local number = tonumber(last)
  if number or not last then
    return number or 0, false
  end
  return tonumber(string.match(last, '^%d+')) or 0, true
end

-- grant makes owner the holder for ttl and returns the token. last is what is on record of the last token, or false; the new one
-- is kept for keep.
local function grant(last, now, owner, inbox, label, ttl, keep, mark)
  local token = math.max(now, parse_last(last) + 1)
  if not (token < 9007199254740992) then
    error('leasehold: the last token on record is out of range: ' .. KEYS[2])
  end
  local text = string.format('%.0f', token) -- tostring would round
  local set
  if last then
    set = redis.call('SET', KEYS[2], text .. mark, 'PX', keep)
  else
    set = redis.call('SET', KEYS[2], text .. mark, 'PX', keep, 'NX')
  end
  if not set then
    redis.call('GET', KEYS[2]) -- MGET hides another type: this names it
  end
  if not redis.call('SET', KEYS[1], text .. ' ' .. owner .. ' ' .. inbox .. ' ' .. label, 'PX', ttl, 'NX') then
    redis.call('GET', KEYS[1])
  end
  return token
end

-- handoff gives the free name to the first waiter whose process keeps its places, and returns owner, inbox, token, ttl and
-- label; nil if nobody waits. Those before it, whose processes are gone, lose their places; such a process learns it from its
-- next poll. The news goes to the waiter's process, unless that is the caller, who has it from the reply.
local function handoff(last, now, caller)
  for _ = 1, 1000 do -- a bound on how long the server is busy; the next poll goes on
    local owner = redis.call('ZPOPMIN', KEYS[3])[1]
    if not owner then
      return nil
    end
    local inbox, ttl, label = string.match(redis.call('HGET', KEYS[4], owner) or '', '^(%S+) (%d+) (.*)$')
    redis.call('HDEL', KEYS[4], owner)
    if inbox then
      if (tonumber(redis.call('ZSCORE', KEYS[5], inbox)) or 0) * 1000 > now then
        ttl = math.min(tonumber(ttl), longest_claim)
        local token = grant(last, now, owner, inbox, label, ttl, ttl + retention, ' q')
        if inbox ~= caller then
          -- A failure is ignored: the grant stands, and the waiter's next poll finds it.
          redis.pcall('PUBLISH', string.match(KEYS[1], '^[^{]*') .. 'inbox:' .. inbox,
            string.format('%.0f %s %.0f %d %s', token, owner, now, ttl, KEYS[1]))
        end
        return owner, inbox, token, ttl, label
      end
      redis.call('ZREM', KEYS[5], inbox)
    end
  end
end

-- take grants the name to owner if it is free and nobody waits for it, or if owner has it already. ttl and keep are strings, as
-- they came: turning numbers into strings is what costs most here. It returns token and expiry (ms) if granted, else nil and what is known of the holder, token and label, and the last token on record.
local function take(owner, label, ttl, keep)
  local found = redis.call('MGET', KEYS[1], KEYS[2])
  local record, last = found[1], found[2]
  if record then
    local token, holder, _, text = parse(record)
    if holder ~= owner then
      return nil, tonumber(token) or 0, text or '', last
    end
    redis.call('PEXPIRE', KEYS[1], ttl, 'GT')
    redis.call('PEXPIRE', KEYS[2], keep, 'GT')
    return tonumber(token), math.floor(micros() / 1000) + ttl
  end
  local now = micros()
  local expiry = math.floor(now / 1000) + ttl
  local _, waiting = parse_last(last)
  if waiting then
    local next, _, token, _, text = handoff(last, now)
    if next == owner then
      redis.call('PEXPIRE', KEYS[1], ttl, 'GT')
      redis.call('PEXPIRE', KEYS[2], keep, 'GT')
      return token, expiry
    end
    if next or redis.call('EXISTS', KEYS[3]) == 1 then
      return nil, token or 0, text or '', last
    end
  end
  return grant(last, now, owner, '-', label, ttl, keep, ''), expiry
end

-- mark notes with the last token that somebody waits. It writes the whole value: it may be missing.
local function mark(last, token, remaining)
  local number, waiting = parse_last(last)
  if not waiting then
    redis.call('SET', KEYS[2], string.format('%.0f q', math.max(number, token)), 'PX', math.max(remaining, 0) + retention)
  end
end

-- ended hands the name, whose record has just been deleted, to the next in the queue. It returns the reply of release and
-- withdraw: the grant rides on it if the next waits in the caller's process.
local function ended(last, token, caller)
  local _, waiting = parse_last(last)
  if not waiting then
    return {1}
  end
  local now = micros()
  local owner, inbox, number, ttl = handoff(last, now, caller)
  if inbox == caller then
    return {1, owner, number, now, ttl}
  end
  if not owner and redis.call('EXISTS', KEYS[3]) == 0 then
    redis.call('SET', KEYS[2], token, 'PX', retention)
  end
  return {1}
end


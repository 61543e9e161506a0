-- What a process with waiters asks about once a second: it keeps their places, moves the queue on if the name is free, and
-- shows a grant whose news was lost.
--
-- KEYS: 1 record, 2 last token, 3 queue, 4 places, 5 processes
-- ARGV: 1 inbox, 2 ms that the process keeps its places, 3 ms that the queue's keys live, 4 the owner that has waited longest
-- Replies: {server µs, lost, token, remaining ms, label}          another holds the name, or nobody (remaining -2)
--          {server µs, lost, token, remaining ms, label, owner}   the holder was handed the name in this inbox
--          lost is 1 if places of the process may be gone: all its waiters have to queue again, which keeps what is left;
--          2 if only the owner in ARGV has none: the news of its grant was lost, and the lease is over by now.
--
-- Invariants
--   * It works on a full server: PEXPIRE is allowed there, and what follows a write is let through.
--   * If places of the process are gone, it is told so. Whoever drops a place drops the process with it, so that the next poll
--     is the first; and a place can be lost by a lost message only to the one that was first among them.

for i = 3, 4 do
  redis.call('PEXPIRE', KEYS[i], ARGV[3])
end
local now = micros()
local ms = math.floor(now / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[5], '-inf', string.format('%.0f', ms))
local lost = redis.call('ZADD', KEYS[5], string.format('%.0f', ms + ARGV[2]), ARGV[1])
redis.call('PEXPIRE', KEYS[5], ARGV[3])

local found = redis.call('MGET', KEYS[1], KEYS[2])
local record, last = found[1], found[2]
local token, owner, inbox, label, remaining
if record then
  token, owner, inbox, label = parse(record)
  remaining = redis.call('PTTL', KEYS[1])
  mark(last, tonumber(token) or 0, remaining)
else
  owner, inbox, token, remaining, label = handoff(last, now, ARGV[1])
end
if lost == 0 and owner ~= ARGV[4] and not redis.call('ZSCORE', KEYS[3], ARGV[4]) then
  lost = 2
end
local reply = {now, lost, tonumber(token) or 0, remaining or -2, label or ''}
if inbox == ARGV[1] then
  reply[6] = owner
end
return reply

-- Takes the lease, or leaves the owner in the queue.
--
-- KEYS: 1 record, 2 last token, 3 queue, 4 places, 5 processes
-- ARGV: 1 owner, 2 label, 3 ttl in ms, 4 ms that the last token lives, 5 inbox, 6 ms that the process keeps its places,
--       7 ms that the queue's keys live
-- Replies: {1, token, expiry in ms of server time}              granted
--          {0, token, remaining ms, label, server µs, fresh}    held, and the owner has its place
--          fresh is 1 if the process had no places kept: those it had before may be gone.
--
-- Invariants
--   * Repeating it for the same owner gives the same token, or keeps the same place.
--   * The queue is in order of arrival even if the server's clock steps back.

local granted, number, text, last = take(ARGV[1], ARGV[2], ARGV[3], ARGV[4])
if granted then
  return {1, granted, number}
end
local remaining = redis.call('PTTL', KEYS[1])
local now = micros()
local tail = redis.call('ZREVRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2]
local place = math.max(now, (tonumber(tail) or 0) + 1)
redis.call('ZADD', KEYS[3], 'NX', string.format('%.0f', place), ARGV[1])
redis.call('HSET', KEYS[4], ARGV[1], ARGV[5] .. ' ' .. ARGV[3] .. ' ' .. ARGV[2])
local fresh = redis.call('ZADD', KEYS[5], string.format('%.0f', math.floor(now / 1000) + ARGV[6]), ARGV[5])
for i = 3, 5 do
  redis.call('PEXPIRE', KEYS[i], ARGV[7])
end
mark(last, number, remaining)
return {0, number, remaining, text, now, fresh}

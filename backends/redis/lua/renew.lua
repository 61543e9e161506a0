-- Makes a lease run for ttl from now.
--
-- KEYS: 1 record, 2 last token
-- ARGV: 1 "<token> <owner> ", 2 ttl in ms, 3 ms that the last token lives
-- Replies: expiry in ms of server time; 0 if there is no record; -1 if it is another's
--
-- Invariants
--   * It never creates a record and never changes one that does not begin with ARGV[1], whose last space makes that exact.
--   * No command here is refused on a full server.

local record = redis.call('GET', KEYS[1])
if not record then
  return 0
end
if string.sub(record, 1, #ARGV[1]) ~= ARGV[1] then
  return -1
end
redis.call('PEXPIRE', KEYS[1], ARGV[2], 'GT')
redis.call('PEXPIRE', KEYS[2], ARGV[3], 'GT')
local now = redis.call('TIME')
return now[1] * 1000 + math.floor(now[2] / 1000) + ARGV[2]

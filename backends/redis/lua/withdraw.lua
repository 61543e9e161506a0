-- Takes back all that an owner may have after an attempt whose outcome is unknown: the lease, or its place in the queue.
--
-- KEYS: 1 record, 2 last token, 3 queue, 4 places, 5 processes
-- ARGV: 1 owner, 2 inbox of the caller
-- Replies: {1}                                     nothing of the owner is left
--          {1, owner, token, server µs, ttl ms}    the lease was handed to a waiter of the caller
--
-- Invariants
--   * A record of another owner is not changed.
--   * What is deleted comes first: that is allowed on a full server, and what follows a write is let through.

redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('HDEL', KEYS[4], ARGV[1])
local record = redis.call('GET', KEYS[1])
local token, holder = parse(record or '')
if holder ~= ARGV[1] then
  return {1}
end
redis.call('DEL', KEYS[1])
return ended(redis.call('GET', KEYS[2]), token, ARGV[2])

-- Ends a lease and hands the name to the next in the queue.
--
-- KEYS: 1 record, 2 last token, 3 queue, 4 places, 5 processes
-- ARGV: 1 "<token> <owner> ", 2 token, 3 inbox of the caller
-- Replies: {1}                                     ended, or gone and nobody had it since
--          {1, owner, token, server µs, ttl ms}    ended, and handed to a waiter of the caller
--          {0}                                     no record, and somebody had the name since, or the store forgot
--          {-1}                                    the record is another's
--
-- Invariants
--   * A record that does not begin with ARGV[1], whose last space makes that exact, is not changed.
--   * The delete comes first: it is allowed on a full server, and what follows a write is let through.

local found = redis.call('MGET', KEYS[1], KEYS[2])
local record, last = found[1], found[2]
if not record then
  if last == ARGV[2] or last == ARGV[2] .. ' q' then
    return {1}
  end
  return {redis.call('GET', KEYS[1]) and -1 or 0} -- MGET hides another type: this names it
end
if string.sub(record, 1, #ARGV[1]) ~= ARGV[1] then
  return {-1}
end
redis.call('DEL', KEYS[1])
return ended(last, ARGV[2], ARGV[3])

-- One attempt to take the lease. It neither waits nor overtakes those who do.
--
-- KEYS: 1 record, 2 last token, 3 queue, 4 places, 5 processes
-- ARGV: 1 owner, 2 label, 3 ttl in ms, 4 ms that the last token lives
-- Replies: {1, token, expiry in ms of server time}   granted
--          {0, token, remaining ms, label}           held: what is known of the holder, never its owner id
--
-- Invariant: repeating it for the same owner gives the same token and the full ttl.

local granted, number, text = take(ARGV[1], ARGV[2], ARGV[3], ARGV[4])
if granted then
  return {1, granted, number}
end
return {0, number, redis.call('PTTL', KEYS[1]), text}

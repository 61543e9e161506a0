// Package redis keeps leases in Redis: a standalone server, one behind Sentinel, or a Cluster.
//
//	client := goredis.NewClient(&goredis.Options{Addr: "localhost:6379"})
//	backend, err := redis.New(client)
//	locks, err := mutex.New(backend)
//	…
//	backend.Close() // before the client
//
// # Guarantees
//
//   - Every change is one script: it happens whole or not at all. Nothing is ever written without an expiry.
//   - Tokens of a name rise, whatever the store forgets: a token is the server's time in microseconds, or one more than the last on
//     record if that clock was stepped back.
//   - Owners are compared whole, and a record of another owner is never changed.
//   - Waiters are served in the order in which their requests reached the server, those of dead processes excepted. A try never
//     overtakes them.
//   - A waiter is granted the lease by the release that frees it. If the message is lost, a poll finds the grant within a second;
//     if the holder dies, a poll comes right after the expiry.
//   - A call ends with its ctx, by deadline and by cancellation, though go-redis by default looks at neither while it reads. The request
//     that is then abandoned ends at the latest with the client's own timeouts.
//   - A full server (maxmemory reached, noeviction) costs no held lease: it is renewed, released and handed on.
//
// # Not guaranteed
//
//   - That a server which loses acknowledged writes, by failover or restart, still excludes others. The holder learns of it at its
//     next renewal, and tokens go on rising as long as the clocks of the servers agree.
//   - A place in the queue to a process that could not reach the server for 5 s: it then queues again, at the end. So does everybody
//     when the server has forgotten the queue.
//   - Order between processes whose clients route to different servers, or use different prefixes: they share nothing.
//
// # Keys
//
// All keys of a name share the hash tag {name}, so they lie in one slot, and every script declares them. In the name, or what
// WithKeyFunc makes of it, "%" and "}" are written as %25 and %7D, and nothing at all as "%".
//
//	leasehold:{name}:l   STRING  the record: "<token> <owner> <inbox> <label>"; inbox is "-" unless handed over   TTL: the lease's
//	leasehold:{name}:t   STRING  the last token, followed by " q" if somebody may wait                            TTL: the lease's + 24 h
//	leasehold:{name}:q   ZSET    the queue: owner by order of arrival                                             TTL: 20 s after the last poll
//	leasehold:{name}:w   HASH    owner: "<inbox> <ttl in ms> <label>"                                             TTL: as :q
//	leasehold:{name}:p   ZSET    inbox of a process by the ms until which it keeps its places                     TTL: as :q
//
// What remains of a name that nobody uses any more is :t, for a day.
//
// A grant is published to leasehold:inbox:<inbox>, where inbox is a random id of the Backend: one subscription for each Backend,
// however many names and waiters, and only while somebody waits or did 2 s ago. In a Cluster messages reach every node.
//
// # Requests
//
// Acquire, Renew, Release, and Wait for a free name take one request each. A hand-over takes two, that of the waiter and the release; a
// process polls each name on which it has waiters once a second, in one request however many they are. Operations that come while two
// requests are under way travel together in pipelines. Scripts go by EVALSHA, and again by EVAL in the same call if the server does not
// know them; SCRIPT is never used. A release is never sent twice, not by the client's own retries either: the repetition
// would be refused because the first had taken effect.
//
// Redis 7.0 or later is needed (PEXPIRE with GT). A server with access rules has to allow:
//
//	ACL SETUSER … ~leasehold:* &leasehold:inbox:* +eval +evalsha +subscribe +unsubscribe +ping +publish +time +get +mget +set
//	  +del +exists +pexpire +pttl +zadd +zrem +zscore +zpopmin +zrevrange +zremrangebyscore +hset +hget +hdel
//
// and what the client needs for itself, such as +hello, +client|setinfo, +cluster|slots, +command.
//
// # Errors
//
// Contention is lease.ErrHeld and nothing else is. Wrong types, missing permissions, keys in different slots and unknown commands match
// lease.ErrPermanent. READONLY, LOADING, OOM, BUSY, MISCONF, TRYAGAIN, CLUSTERDOWN, MASTERDOWN and whatever the network does are
// unknown outcomes.
//
// # States
//
// A line is what waits for a name in this process, a waiter one call of Wait in it:
//
//	enter ──► queueing ──► parked ──► handed over (release, message or poll) ──► leave
//	             ▲           │
//	             └───────────┘  its place may be gone: queue again, which keeps it if it is not
//
// # Concurrency
//
// A Backend is safe for concurrent use. It runs up to two goroutines while requests are under way (more if connections are dead),
// one for each name that is waited for, and two for the subscription. Close ends them all.
package redis

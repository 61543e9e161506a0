// Package leasehold is where to begin reading. It has no code of its own.
//
// Leasehold is a toolkit for locks that several processes share. A lock is a lease: granted for a time, renewed by a supervisor
// while it is held, and at its end either released or lost. Whoever holds one has a handle that says so in the ways in which Go code
// is told things, by a closed channel, an ended context, an error. So worker loops, derived contexts and errgroups stop by
// themselves when the lease is gone.
//
//	locks, err := mutex.New(backend)             // once, for the whole program
//	h, err := locks.Lock(ctx, "orders:42")       // waits for its turn
//	defer h.Close()                              // releases
//
// # Packages
//
//	mutex ──► renewal ──► lease ◄── backends/memory
//	  │                    ▲  ▲──── backends/redis
//	  └────────────────────┘
//
// Arrows are imports. What each is for:
//
//   - mutex: what programs call. New, Lock, TryLock, Do, Close, and the options.
//   - lease: the model that all others share. The handle, the errors, the token, and the contract of backends. No I/O, no
//     goroutines.
//   - renewal: the supervisor of a held lease. A pure policy decides, a thin loop acts.
//   - backends/memory: leases within one process; the reference for what a backend does.
//   - backends/redis: leases in Redis, by a client of go-redis.
//   - lease/leasetest: the conformance kit for authors of backends, and a wrapper that makes any backend fail on purpose.
//   - examples: programs. worker shows all of it in seven seconds; errgroup, cron and workerid have one idea each.
//   - props: property tests of the whole in simulated time.
//
// To use Leasehold, read mutex, then Handle and the errors in lease, then the package of the backend. To write a backend, read
// lease.Backend, docs/writing-a-backend.md and backends/memory. To change Leasehold, read lease, then renewal/policy.go, then
// renewal/supervisor.go, then CONTRIBUTING.md.
//
// # Guarantees
//
//   - At most one handle for a name is valid at any time, as long as the store keeps what it has confirmed and clocks run at rates
//     within 1 % of each other. "I may not use it any more" comes before "another may have it", with a margin between.
//   - A holder is told of a loss at the end of its trust in the lease at the latest, whatever the network does.
//   - Tokens of one name rise from grant to grant.
//   - Contention, cancellation, trouble with the store and loss are errors that errors.Is tells apart.
//   - Nothing is left behind: no goroutine, no timer, and no record that outlives its TTL.
//
// docs/guarantees.md lists every promise beside the test that checks it.
//
// # Not guaranteed
//
// A lease does not stop its holder. Between a look at the handle and the write that follows, a process can be paused for longer
// than any TTL, and meanwhile somebody else holds the lease. Only the storage that is written to can refuse that write: by
// comparing fencing tokens, Handle.Token, and refusing one that is lower than the highest it has seen. Where that is not possible,
// use a lease to avoid double work, and not to prevent damage.
//
// A store that forgets what it has confirmed, as Redis may in a failover, can grant a name twice. The tokens still rise.
package leasehold

// Package mutex is what users of Leasehold call: locks by name, granted as supervised leases.
//
//	locks, err := mutex.New(backend)
//	h, err := locks.Lock(ctx, "orders:42")
//	defer h.Close()
//
// A Locker belongs to one backend and is shared by the whole program. Lock waits, TryLock does not, Do wraps a function. What
// they return is a *lease.Handle: select on its Lost channel, derive from its Context, and send its Token with every write.
//
// # Guarantees
//
//   - A handle and a nil error, or a nil handle and an error: never both, never neither.
//   - Contention matches lease.ErrHeld, the end of a wait matches its context error, trouble with the backend matches neither of
//     them by itself, and bad input matches lease.ErrInvalid before anything is sent.
//   - A call that ends without a lease leaves none behind: what it was given in the last moment is given back, in the
//     background, by one request. Close waits for those.
//   - Waiters are served in the order in which the backend saw them if it is a lease.Queuer; otherwise they poll.
//   - A lease is renewed until it is released, whatever becomes of the ctx that it was locked with.
//
// # Not guaranteed
//
//   - That an attempt which the store never answered has not been granted after all: it may keep the name busy for one TTL.
//   - Reentrancy: whoever locks a name that it holds waits for itself.
//
// # Concurrency
//
// All methods of Locker are safe for concurrent use, and each call that succeeds has a handle of its own. Between processes only
// the tokens order works.
package mutex

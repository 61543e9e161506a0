// Package lease is the model that all of Leasehold shares: what a lease is, how it ends, and what a backend must do. It does
// no I/O and starts no goroutine.
//
// Users meet three things here: the Handle that mutex.Locker grants, the errors, and the Token. Authors of backends implement
// Backend and, if waiters can queue in their store, Queuer. Authors of supervisors use Control.
//
// # States
//
//	                 ┌──────► Released   Handle.Release, Handle.Close
//	grant ──► Held ──┤
//	                 └──────► Lost       Expired, Missing, Taken, Revoked, MaxHold, Closed, Abandoned
//
// Both ends are final. Control.End is the only place that makes the transition.
//
// # Guarantees
//
//   - Lost closes at the latest at TrustedUntil, and TrustedUntil is before the record can expire, as long as this machine's
//     clock and the store's run at rates within 1 % of each other.
//   - The signals agree: whoever is woken by Lost, Done or Context finds the others given, and Err telling why.
//   - Tokens of one name strictly increase in grant order, and a handle's token never changes.
//   - A handle has one end, and everybody is told the same.
//
// # Not guaranteed
//
//   - That the holder has stopped when another is granted the lease. A process can be paused between its last look at the lease and
//     its write, for longer than any TTL. Only storage that compares fencing tokens refuses that write.
//   - That a store which forgets acknowledged writes, by failover or restart, still excludes others until the loss is noticed.
//
// # Concurrency
//
// Everything exported is safe for concurrent use unless it says otherwise. A lease is not reentrant: a second acquisition of
// a held name waits or fails, from the same goroutine too.
package lease

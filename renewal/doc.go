// Package renewal supervises a held lease: one actor goroutine per handle renews it, takes commands, and ends it exactly once.
//
// A pure policy (plan.next) decides; the loop (Supervisor.run) acts. Calls to the backend run on a goroutine of their own that
// lives for the call, so that nothing a call does can delay the end of trust, and the actor's stack stays small.
//
// # Guarantees
//
//   - The lease is lost at the end of its trust, on time, whatever a call in flight does; nothing is sent for it afterwards but
//     one compare-and-delete.
//   - Trust counts from before a request was sent. A reply that comes after the end of trust never revives the lease.
//   - An outcome that is not known is no loss: renewals are repeated, at least three times within the trust, unless strict
//     renewal was asked for.
//   - A pause is followed by one renewal, never by a burst.
//   - There is one call in flight per lease. When Release returns, the actor and its timer are gone.
//
// # Not guaranteed
//
//   - That a call which ignores its context ends. It is left behind, once per handle, and its late success is given back.
//
// # States
//
//	      ┌─ renew ─► call in flight ─┐
//	Held ─┤                           ├─► Held …     confirmed, or unknown with trust left
//	      └───────── wait ────────────┘
//	Held ──► Released     Release
//	Held ──► Lost         end of trust, refused by the backend, longest hold, Locker closed, handle dropped
package renewal

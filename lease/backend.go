package lease

import (
	"context"
	"time"
)

// Backend stores leases. This page is for authors of backends; users only pass one in. leasetest.Run checks all that is
// promised here.
//
// Every call ends in one of three ways:
//
//   - done: a nil error;
//   - refused: an error that matches ErrHeld or ErrNotOwner, meaning that the call changed nothing. A backend returns
//     *HeldError with what it knows of the holder, and ErrMissing or ErrTaken;
//   - unknown: any other error. It proves nothing: the call may have taken effect, or may yet. Errors that match
//     ErrPermanent are not worth another try.
//
// Calls return soon after ctx ends, whatever they wait for. All methods are safe for concurrent use. A lease whose TTL is over
// is as if it had never been, except that tokens go on rising. Nothing but its own expiry, its owner, or an operator ends it.
type Backend interface {
	// Acquire makes one attempt to take the lease on req.Name for req.TTL. It neither waits for the holder nor overtakes
	// those who wait in a queue; then it returns *HeldError. It is idempotent per req.Owner: while that owner holds the name, a repetition
	// returns the same token, runs for at least the full TTL from then on, and takes nothing from anybody.
	Acquire(ctx context.Context, req Request) (Grant, error)

	// Renew makes the lease run for at least ttl from now, if claim's owner and token are those on record. Otherwise it changes
	// nothing and returns ErrMissing or ErrTaken. It never creates a record, and the token stays the same. It never makes a
	// lease end earlier than it did: requests overtake each other, and one that comes late must not cut what a later one got.
	Renew(ctx context.Context, claim Claim, ttl time.Duration) (Grant, error)

	// Release ends the lease, if claim's owner and token are those on record, and hands it to the next in the queue. It also
	// returns nil when the record is gone but nobody has held the name since claim's token was granted, as far as the backend
	// still remembers. Otherwise it changes nothing and returns ErrMissing or ErrTaken. It must not be repeated by a layer below: a
	// repetition could be refused because the first had taken effect.
	//
	// A claim with a zero token withdraws an owner whose Acquire or Wait ended unknown: whatever that owner has is given
	// back, its lease or its place in the queue. Having nothing is nil then.
	Release(ctx context.Context, claim Claim) error

	// Info says what the backend is and can do. It blocks on nothing and always returns the same.
	Info() Info
}

// Queuer is a Backend in which waiters stand in a FIFO queue and are handed the lease by the release that frees it. A backend
// without it is polled. A wrapper that embeds a Backend hides this from callers; one that is to keep the queue embeds a Queuer.
type Queuer interface {
	Backend

	// Wait takes the lease on req.Name as soon as it is this owner's turn. A free name that nobody waits for is granted at
	// once, in a single round trip to the store. A lease that is handed over later runs for ClaimTTL. It blocks until the lease is granted, ctx ends, or an attempt to talk to the
	// store ends unknown. Repeating the call for the same owner keeps its place or, if it was granted meanwhile, returns that grant.
	//
	// held, if not nil, is called in the waiting goroutine each time that the store confirms that somebody else holds the
	// name; it must not block.
	//
	// An error that matches ErrHeld says that nothing is left behind. After any other error the owner may still have a place
	// in the queue or even the lease: the caller then calls again, or withdraws the owner with Release and a zero token.
	Wait(ctx context.Context, req Request, held func(Holder)) (Grant, error)
}

// Request asks for a lease. Validate checks it.
type Request struct {
	// Name of what is locked: 1 to MaxNameBytes bytes of any value.
	Name string
	// Owner identifies one call of Lock, the same on every attempt of it: 1 to MaxOwnerBytes printable ASCII characters
	// without spaces. The mutex package uses 128 random bits.
	Owner string
	// Label is shown to people who ask who holds the lease: up to MaxLabelBytes bytes of any value.
	Label string
	// TTL from MinTTL to MaxTTL. A backend may cut it to whole milliseconds.
	TTL time.Duration
}

// Claim names a lease that was granted: what Renew and Release compare with the record.
type Claim struct {
	Name, Owner string
	Token       Token
}

// Grant is what an owner got.
type Grant struct {
	// Token orders this grant among all of its name.
	Token Token
	// TTL is how long the lease runs, as granted: it may be shorter than asked for, and the supervisor then renews early.
	TTL time.Duration
	// ExpiresAt is the expiry as the backend's own clock states it. It is for people; no decision is made by it.
	ExpiresAt time.Time
	// Since is an instant on the caller's clock at or before which the lease began to run, and no later than any at which
	// another owner's time could be counted from. Zero means: the instant before the call was made. A Queuer whose
	// Wait did not grant at once and cannot state Since leaves it zero; the caller then confirms the grant with Renew.
	Since time.Time
}

// Holder is what a backend tells of the present holder of a name. Fields that it does not know are zero.
type Holder struct {
	Label string
	Token Token
	// Remaining is how long the holder's lease still runs unless renewed: a hint for when to ask again.
	Remaining time.Duration
}

// Info describes a backend.
type Info struct {
	// Name for errors and logs: "memory", "redis".
	Name string
	// ProcessLocal: the backend does not reach beyond this process, so it excludes nobody elsewhere.
	ProcessLocal bool
	// TokensSurvive: tokens go on rising although the store forgets everything (FLUSHALL, restart without persistence).
	TokensSurvive bool
}

// KeyFunc maps a lease's name to the part of the physical keys that stands for it. It must be pure, deterministic and
// injective: two names with the same key would exclude each other. It must not depend on anything but the name.
type KeyFunc func(name string) string

package lease

import "fmt"

// State says where in its life a handle is. The zero State belongs to a nil handle, which never held anything.
type State uint8

const (
	// Held: granted, and not ended yet. Whether it may still be relied on is a question of time: ask Handle.Valid.
	Held State = iota + 1
	// Released (terminal): the holder gave the lease back.
	Released
	// Lost (terminal): the lease ended without its holder's doing. Handle.Err says why.
	Lost
)

// String returns the state's name in lower case.
func (s State) String() string {
	switch s {
	case Held:
		return "held"
	case Released:
		return "released"
	case Lost:
		return "lost"
	case 0:
		return "none"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Terminal reports whether the state is an end. Ends are final.
func (s State) Terminal() bool { return s == Released || s == Lost }

// Reason says why a lease was lost.
type Reason uint8

const (
	// Expired: no renewal was confirmed before the trust in the lease ended. Under strict renewal, the first unconfirmed one.
	Expired Reason = iota + 1
	// Missing: the backend has no record of the lease: deleted, evicted, flushed or forgotten in a restart.
	Missing
	// Taken: the backend has the name on record for somebody else.
	Taken
	// Revoked: an operator took the lease away.
	Revoked
	// MaxHold: the longest hold that was asked for is over.
	MaxHold
	// Closed: the Locker that granted the handle was closed.
	Closed
	// Abandoned: the handle was dropped without a release and collected.
	Abandoned
)

// String returns the reason as it reads in an error's text.
func (r Reason) String() string {
	switch r {
	case Expired:
		return "expired"
	case Missing:
		return "record missing"
	case Taken:
		return "taken by another owner"
	case Revoked:
		return "revoked"
	case MaxHold:
		return "longest hold reached"
	case Closed:
		return "locker closed"
	case Abandoned:
		return "handle dropped"
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

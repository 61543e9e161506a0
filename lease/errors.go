package lease

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// The sentinels answer the questions that callers ask with errors.Is. Details are in HeldError, LostError and OptionError.
var (
	// ErrHeld: somebody else holds the name. It is contention and nothing else: trouble with the backend never matches it.
	ErrHeld = errors.New("lease: held by another owner")
	// ErrLost: the lease ended without its holder's doing.
	ErrLost = errors.New("lease: lost")
	// ErrReleased: the handle was released before.
	ErrReleased = errors.New("lease: released")
	// ErrNotOwner: the backend does not have the caller on record as the holder.
	ErrNotOwner = errors.New("lease: not the owner")
	// ErrClosed: the Locker or the backend is closed.
	ErrClosed = errors.New("lease: closed")
	// ErrInvalid: a name, an option or an argument is out of bounds. Nothing was sent.
	ErrInvalid = errors.New("lease: invalid")
	// ErrPermanent: the backend refuses in a way that trying again will not mend, such as a missing permission or a key of
	// another type. It is never contention.
	ErrPermanent = errors.New("lease: permanent failure")

	// ErrMissing and ErrTaken tell the two ways of not being the owner apart; both match ErrNotOwner. A backend returns one
	// of them from Renew and Release.
	ErrMissing = fmt.Errorf("%w: the record is missing", ErrNotOwner)
	ErrTaken   = fmt.Errorf("%w: the name is taken", ErrNotOwner)
)

// HeldError says that a lease was not granted because somebody else holds it. It matches ErrHeld, and the context error that
// ended the wait, if one did.
type HeldError struct {
	// Name as the caller wrote it.
	Name string
	// Waited is how long the call waited for its turn; 0 for a single try.
	Waited time.Duration
	// Holder is what the backend told of the holder. Fields that it did not tell are zero.
	Holder Holder
	// Cause is the context error that ended the wait; nil after a single try.
	Cause error
}

// Error names the lease, its holder as far as known, and what ended the wait.
func (e *HeldError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "lease: %q is held by another owner", e.Name)
	if e.Holder.Label != "" {
		fmt.Fprintf(&b, " (%s)", e.Holder.Label)
	}
	if e.Waited > 0 {
		fmt.Fprintf(&b, ", waited %v", e.Waited)
	}
	if e.Cause != nil {
		fmt.Fprintf(&b, ": %v", e.Cause)
	}
	return b.String()
}

// Is matches ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// Unwrap returns the context error that ended the wait, or nil.
func (e *HeldError) Unwrap() error { return e.Cause }

// LostError says that a lease was lost, and why. It matches ErrLost, and the last backend error, if there was one.
type LostError struct {
	// Name as the caller wrote it.
	Name string
	// Token of the lease that was lost.
	Token Token
	// Reason tells the ways of losing apart.
	Reason Reason
	// Err is the last backend error: for Expired what kept the renewals from succeeding, nil if none was tried.
	Err error
}

// Error names the lease, the reason and the last backend error.
func (e *LostError) Error() string {
	s := fmt.Sprintf("lease: %q (token %d) lost: %v", e.Name, e.Token, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is matches ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns the last backend error, or nil.
func (e *LostError) Unwrap() error { return e.Err }

// OptionError says which option or argument is out of bounds, and what the bound is. It matches ErrInvalid.
type OptionError struct {
	// Option is the name of the option or argument, as in the code: "WithTTL", "name".
	Option string
	// Value is what was given.
	Value any
	// Problem says what is wrong, naming the bound.
	Problem string
}

// Error names the option, the value and the bound.
func (e *OptionError) Error() string {
	if s, ok := e.Value.(string); ok {
		if len(s) > 64 {
			s = s[:64] + "…"
		}
		return fmt.Sprintf("lease: invalid %s %q: %s", e.Option, s, e.Problem)
	}
	return fmt.Sprintf("lease: invalid %s %v: %s", e.Option, e.Value, e.Problem)
}

// Is matches ErrInvalid.
func (e *OptionError) Is(target error) bool { return target == ErrInvalid }

// Permanent marks err as one that trying again will not mend: the result matches ErrPermanent and err. It is for backend
// authors; waiting ends at once with such an error. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrPermanent, err)
}

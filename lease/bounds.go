package lease

import (
	"errors"
	"fmt"
	"time"
)

// Bounds that Request.Validate and the options check.
const (
	// MinTTL is the shortest lease: below it the margin would eat the trust.
	MinTTL = 10 * time.Millisecond
	// MaxTTL is the longest lease, 100 years: above it instants overflow in clocks that count nanoseconds.
	MaxTTL = 100 * 365 * 24 * time.Hour
	// MaxClaimTTL is the longest that a lease which was handed over runs unless it is renewed: see ClaimTTL.
	MaxClaimTTL = 3 * time.Second
	// MaxNameBytes bounds a lease's name.
	MaxNameBytes = 1024
	// MaxOwnerBytes bounds an owner's id.
	MaxOwnerBytes = 128
	// MaxLabelBytes bounds a label.
	MaxLabelBytes = 1024
)

// Margin is what the trust in a lease of this length ends before the lease does: 1 % for clocks that run at different rates,
// and 2 ms for timers that fire late.
func Margin(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// TrustEnd returns the instant at which the trust in a lease ends that was sent for at sent and granted for ttl. It keeps
// sent's monotonic reading.
func TrustEnd(sent time.Time, ttl time.Duration) time.Time { return sent.Add(ttl - Margin(ttl)) }

// CallBound is how long one backend call for a lease of this length may take: a third of it, so that two more fit, and at
// most 5 s.
func CallBound(ttl time.Duration) time.Duration { return min(ttl/3, 5*time.Second) }

// ClaimTTL is how long a lease that a queue handed over runs until its first renewal makes it a full one: at most 3 s, so that
// a waiter that died in the queue costs the next one seconds, and never more than the TTL.
func ClaimTTL(ttl time.Duration) time.Duration { return min(ttl, MaxClaimTTL) }

// Validate returns all violations joined, each an *OptionError, or nil.
func (r Request) Validate() error {
	return errors.Join(CheckName(r.Name), checkOwner(r.Owner), CheckLabel(r.Label), CheckTTL("TTL", r.TTL))
}

// CheckName returns an *OptionError unless name may name a lease.
func CheckName(name string) error {
	switch {
	case name == "":
		return &OptionError{Option: "name", Value: name, Problem: "must not be empty"}
	case len(name) > MaxNameBytes:
		return &OptionError{Option: "name", Value: name, Problem: fmt.Sprintf("has %d bytes, at most %d are allowed", len(name), MaxNameBytes)}
	}
	return nil
}

// CheckLabel returns an *OptionError unless label may label a holder.
func CheckLabel(label string) error {
	if len(label) > MaxLabelBytes {
		return &OptionError{Option: "WithLabel", Value: label, Problem: fmt.Sprintf("has %d bytes, at most %d are allowed", len(label), MaxLabelBytes)}
	}
	return nil
}

// CheckTTL returns an *OptionError that names option unless ttl is within MinTTL and MaxTTL.
func CheckTTL(option string, ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return &OptionError{Option: option, Value: ttl, Problem: fmt.Sprintf("must be from %v to %v", MinTTL, MaxTTL)}
	}
	return nil
}

func checkOwner(owner string) error {
	problem := ""
	if owner == "" || len(owner) > MaxOwnerBytes {
		problem = fmt.Sprintf("must have 1 to %d bytes", MaxOwnerBytes)
	}
	for _, c := range []byte(owner) {
		if c <= ' ' || c > '~' {
			problem = "must be printable ASCII without spaces"
		}
	}
	if problem == "" {
		return nil
	}
	return &OptionError{Option: "Owner", Value: owner, Problem: problem}
}

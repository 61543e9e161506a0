package lease_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/lease"
)

var sentinels = map[string]error{
	"ErrHeld": lease.ErrHeld, "ErrLost": lease.ErrLost, "ErrReleased": lease.ErrReleased, "ErrNotOwner": lease.ErrNotOwner,
	"ErrClosed": lease.ErrClosed, "ErrInvalid": lease.ErrInvalid, "ErrPermanent": lease.ErrPermanent, "ErrMissing": lease.ErrMissing, "ErrTaken": lease.ErrTaken,
	"Canceled": context.Canceled, "DeadlineExceeded": context.DeadlineExceeded, "EOF": io.EOF,
}

// What each error matches, and nothing else.
func TestErrors_Match(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&lease.HeldError{Name: "x"}, "ErrHeld"},
		{&lease.HeldError{Name: "x", Cause: context.Canceled}, "Canceled ErrHeld"},
		{&lease.HeldError{Name: "x", Cause: context.DeadlineExceeded}, "DeadlineExceeded ErrHeld"},
		{&lease.LostError{Name: "x", Reason: lease.Expired}, "ErrLost"},
		{&lease.LostError{Name: "x", Reason: lease.Expired, Err: io.EOF}, "EOF ErrLost"},
		{&lease.LostError{Name: "x", Reason: lease.Taken, Err: lease.ErrTaken}, "ErrLost ErrNotOwner ErrTaken"},
		{&lease.LostError{Name: "x", Reason: lease.Missing, Err: lease.ErrMissing}, "ErrLost ErrMissing ErrNotOwner"},
		{&lease.OptionError{Option: "WithTTL", Value: 1}, "ErrInvalid"},
		{lease.ErrMissing, "ErrMissing ErrNotOwner"},
		{lease.ErrTaken, "ErrNotOwner ErrTaken"},
		{lease.Permanent(io.EOF), "EOF ErrPermanent"},
		{fmt.Errorf("renew: %w", &lease.LostError{Err: io.EOF}), "EOF ErrLost"},
	} {
		var got []string
		for name, sentinel := range sentinels {
			if errors.Is(c.err, sentinel) {
				got = append(got, name)
			}
		}
		if !sameWords(got, c.want) {
			t.Errorf("%v matches %v, want %s", c.err, got, c.want)
		}
	}
	if lease.Permanent(nil) != nil {
		t.Error("Permanent(nil) is not nil")
	}
}

func sameWords(got []string, want string) bool {
	words := strings.Fields(want)
	for _, w := range words {
		found := false
		for _, g := range got {
			found = found || g == w
		}
		if !found {
			return false
		}
	}
	return len(got) == len(words)
}

func TestErrors_Text(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&lease.HeldError{Name: "a b"}, `lease: "a b" is held by another owner`},
		{&lease.HeldError{Name: "x", Holder: lease.Holder{Label: "host-1"}, Waited: time.Second, Cause: context.Canceled},
			`lease: "x" is held by another owner (host-1), waited 1s: context canceled`},
		{&lease.LostError{Name: "x", Token: 7, Reason: lease.Expired, Err: io.EOF}, `lease: "x" (token 7) lost: expired: EOF`},
		{&lease.LostError{Name: "x", Token: 7, Reason: lease.MaxHold}, `lease: "x" (token 7) lost: longest hold reached`},
		{&lease.OptionError{Option: "WithTTL", Value: time.Second, Problem: "is bad"}, `lease: invalid WithTTL 1s: is bad`},
		{&lease.OptionError{Option: "name", Value: "x", Problem: "is bad"}, `lease: invalid name "x": is bad`},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	if long := (&lease.OptionError{Option: "name", Value: strings.Repeat("x", 10_000)}).Error(); len(long) > 200 {
		t.Errorf("a long value is told in %d bytes", len(long))
	}
}

// Every state and reason has a text of its own, and an unknown one says its number.
func TestStateAndReason_String(t *testing.T) {
	seen := make(map[string]bool)
	for s := lease.State(0); s <= lease.Lost; s++ {
		seen[s.String()] = true
		if s.Terminal() != (s == lease.Released || s == lease.Lost) {
			t.Errorf("%v: terminal %v", s, s.Terminal())
		}
	}
	for r := lease.Expired; r <= lease.Abandoned; r++ {
		seen[r.String()] = true
	}
	if len(seen) != 4+7 {
		t.Errorf("texts %v, want 11 that differ", seen)
	}
	if got := (lease.Lost + 1).String(); got != "State(4)" {
		t.Error(got)
	}
	if got := (lease.Abandoned + 1).String(); got != "Reason(8)" {
		t.Error(got)
	}
	if got := lease.MaxToken.String(); got != "9007199254740991" {
		t.Error(got)
	}
}

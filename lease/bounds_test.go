package lease_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/leasehold-go/leasehold/lease"
)

func TestRequest_Validate(t *testing.T) {
	good := lease.Request{Name: "x", Owner: "o", TTL: time.Second}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]struct {
		change func(r *lease.Request)
		ok     bool
	}{
		"EmptyName":    {func(r *lease.Request) { r.Name = "" }, false},
		"LongestName":  {func(r *lease.Request) { r.Name = strings.Repeat("\x00", lease.MaxNameBytes) }, true},
		"LongerName":   {func(r *lease.Request) { r.Name = strings.Repeat("x", lease.MaxNameBytes+1) }, false},
		"EmptyOwner":   {func(r *lease.Request) { r.Owner = "" }, false},
		"LongestOwner": {func(r *lease.Request) { r.Owner = strings.Repeat("~", lease.MaxOwnerBytes) }, true},
		"LongerOwner":  {func(r *lease.Request) { r.Owner = strings.Repeat("x", lease.MaxOwnerBytes+1) }, false},
		"SpaceInOwner": {func(r *lease.Request) { r.Owner = "a b" }, false},
		"TabInOwner":   {func(r *lease.Request) { r.Owner = "a\tb" }, false},
		"DelInOwner":   {func(r *lease.Request) { r.Owner = "a\x7f" }, false},
		"UTF8InOwner":  {func(r *lease.Request) { r.Owner = "ä" }, false},
		"LongestLabel": {func(r *lease.Request) { r.Label = strings.Repeat("\xff", lease.MaxLabelBytes) }, true},
		"LongerLabel":  {func(r *lease.Request) { r.Label = strings.Repeat("x", lease.MaxLabelBytes+1) }, false},
		"NoTTL":        {func(r *lease.Request) { r.TTL = 0 }, false},
		"NegativeTTL":  {func(r *lease.Request) { r.TTL = -time.Second }, false},
		"ShortestTTL":  {func(r *lease.Request) { r.TTL = lease.MinTTL }, true},
		"ShorterTTL":   {func(r *lease.Request) { r.TTL = lease.MinTTL - 1 }, false},
		"LongestTTL":   {func(r *lease.Request) { r.TTL = lease.MaxTTL }, true},
		"LongerTTL":    {func(r *lease.Request) { r.TTL = lease.MaxTTL + 1 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := good
			c.change(&r)
			err := r.Validate()
			if (err == nil) != c.ok || err != nil && !errors.Is(err, lease.ErrInvalid) {
				t.Errorf("got %v, want it to be good: %v", err, c.ok)
			}
		})
	}
	all := lease.Request{Label: strings.Repeat("x", lease.MaxLabelBytes+1)}.Validate()
	if joined, ok := all.(interface{ Unwrap() []error }); !ok || len(joined.Unwrap()) != 4 {
		t.Errorf("got %v, want four violations", all)
	}
}

// For every TTL: the trust is positive, ends before the lease by at least 1 %, and the bounds on calls fit into it.
func TestBounds_EveryTTL(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ttl := time.Duration(rapid.Int64Range(int64(lease.MinTTL), int64(lease.MaxTTL)).Draw(t, "ttl"))
		if rapid.Bool().Draw(t, "short") {
			ttl = time.Duration(rapid.Int64Range(int64(lease.MinTTL), int64(time.Minute)).Draw(t, "short ttl"))
		}
		margin := lease.Margin(ttl)
		if margin < ttl/100 || margin >= ttl/2 {
			t.Fatalf("margin %v of %v", margin, ttl)
		}
		sent := realNow
		end := lease.TrustEnd(sent, ttl)
		if got := end.Sub(sent); got != ttl-margin {
			t.Fatalf("trust ends %v after the request", got)
		}
		if end.String() == end.Round(0).String() {
			t.Fatal("the monotonic reading is gone")
		}
		if b := lease.CallBound(ttl); b <= 0 || b > ttl/3 || b > 5*time.Second {
			t.Fatalf("call bound %v of %v", b, ttl)
		}
		if c := lease.ClaimTTL(ttl); c < lease.MinTTL || c > ttl || c > 3*time.Second {
			t.Fatalf("claim of %v for %v", c, ttl)
		}
	})
}

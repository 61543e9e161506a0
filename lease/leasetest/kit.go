package leasetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/lease"
)

// long is the TTL of leases that no case waits out.
const long = time.Minute

// kit is what a case works with.
type kit struct {
	testing.TB
	settings
	backend lease.Backend
	ctx     context.Context // bounds what a backend that hangs can cost
	prefix  string          // of all names of the case, random
	owners  atomic.Int64    // handed out so far
	moved   atomic.Int64    // by advance, in nanoseconds
}

func newKit(t testing.TB, s settings, b lease.Backend) *kit {
	bound := 30 * time.Second
	if s.bubble {
		bound = 24 * time.Hour
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	t.Cleanup(cancel)
	return &kit{TB: t, settings: s, backend: b, ctx: ctx, prefix: fmt.Sprintf("lt%08x", rand.Uint32())}
}

// name returns a name that only this case uses.
func (k *kit) name(s string) string { return k.prefix + s }

// owner returns an owner id that nobody else has.
func (k *kit) owner() string { return fmt.Sprintf("%s.%d", k.prefix, k.owners.Add(1)) }

// held is a lease that a case was granted.
type held struct {
	claim lease.Claim
	grant lease.Grant
	label string
	// The lease ends no earlier than from, which counts from before the request was sent, and no later than to, which counts
	// from the reply.
	from, to time.Time
}

// newHeld makes a held of a grant for req that was asked for at sent and has just come.
func (k *kit) newHeld(req lease.Request, g lease.Grant, sent time.Time) *held {
	k.Helper()
	if g.TTL <= 0 || g.TTL > req.TTL {
		k.Errorf("asked for a lease of %v: got one of %v", req.TTL, g.TTL)
	}
	return &held{
		claim: lease.Claim{Name: req.Name, Owner: req.Owner, Token: g.Token}, grant: g, label: req.Label,
		from: sent.Add(g.TTL), to: k.now().Add(g.TTL),
	}
}

// try makes one attempt for owner.
func (k *kit) try(name, owner string, ttl time.Duration) (*held, error) {
	return k.tryRequest(k.backend, lease.Request{Name: name, Owner: owner, TTL: ttl})
}

func (k *kit) tryRequest(b lease.Backend, req lease.Request) (*held, error) {
	sent := k.now()
	g, err := b.Acquire(k.ctx, req)
	if err != nil {
		return nil, err
	}
	return k.newHeld(req, g, sent), nil
}

// acquire takes a free name for a new owner.
func (k *kit) acquire(name string, ttl time.Duration) *held {
	k.Helper()
	return k.acquireAs(name, k.owner(), ttl)
}

// acquireAs takes a name that is free, or that owner has.
func (k *kit) acquireAs(name, owner string, ttl time.Duration) *held {
	k.Helper()
	h, err := k.try(name, owner, ttl)
	if err != nil {
		k.Fatalf("Acquire(%.40q, owner %q, TTL %v): got error %v, want the lease", name, owner, ttl, err)
	}
	return h
}

// renewed renews h and notes its new end.
func (k *kit) renewed(h *held, ttl time.Duration) {
	k.Helper()
	sent := k.now()
	g, err := k.backend.Renew(k.ctx, h.claim, ttl)
	if err != nil {
		k.unlessLate(h)
		k.Fatalf("Renew by the holder: got error %v, want nil", err)
	}
	if g.Token != h.claim.Token {
		k.Fatalf("Renew changed the token from %v to %v", h.claim.Token, g.Token)
	}
	*h = *k.newHeld(lease.Request{Name: h.claim.Name, Owner: h.claim.Owner, Label: h.label, TTL: ttl}, g, sent)
}

// release gives h back, which must succeed.
func (k *kit) release(h *held) {
	k.Helper()
	if err := k.backend.Release(k.ctx, h.claim); err != nil {
		k.unlessLate(h)
		k.Fatalf("Release by the holder: got error %v, want nil", err)
	}
}

// withdraw gives back whatever owner has, which must succeed.
func (k *kit) withdraw(name, owner string) {
	k.Helper()
	if err := k.backend.Release(k.ctx, lease.Claim{Name: name, Owner: owner}); err != nil {
		k.Fatalf("Release with a zero token: got error %v, want nil", err)
	}
}

// wantHeld checks that a stranger is refused, and told of h if of anybody.
func (k *kit) wantHeld(h *held) {
	k.Helper()
	k.wantHeldThrough(k.backend, h)
}

func (k *kit) wantHeldThrough(b lease.Backend, h *held) {
	k.Helper()
	sent := k.now()
	other, err := k.tryRequest(b, lease.Request{Name: h.claim.Name, Owner: k.owner(), TTL: long})
	if err == nil {
		k.unlessLate(h)
		k.Fatalf("the name is held under token %v, and yet another owner was granted token %v", h.claim.Token, other.claim.Token)
	}
	k.checkRefusal(err)
	var refusal *lease.HeldError
	if errors.As(err, &refusal) {
		k.checkHolder(refusal.Holder, h, sent)
	}
}

// checkRefusal checks that err says contention and nothing else.
func (k *kit) checkRefusal(err error) {
	k.Helper()
	switch {
	case !errors.Is(err, lease.ErrHeld):
		k.Fatalf("Acquire of a held name: got error %v, want one that matches ErrHeld", err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		k.Errorf("Acquire of a held name: error %v matches a context error, although no context has ended", err)
	case errors.Is(err, lease.ErrNotOwner), errors.Is(err, lease.ErrInvalid), errors.Is(err, lease.ErrPermanent):
		k.Errorf("Acquire of a held name: error %v matches another sentinel too", err)
	}
}

// checkHolder checks what a reply that was asked for at sent tells of h.
func (k *kit) checkHolder(got lease.Holder, h *held, sent time.Time) {
	k.Helper()
	if got.Token != 0 && got.Token != h.claim.Token {
		k.Errorf("Holder.Token: got %v, want %v, or 0 for unknown", got.Token, h.claim.Token)
	}
	if got.Label != "" && got.Label != h.label {
		k.Errorf("Holder.Label: got %q, want %q, or empty for unknown", got.Label, h.label)
	}
	if got.Remaining == 0 {
		return
	}
	slack := k.slack(h)
	if least, most := h.from.Sub(k.now())-slack, h.to.Sub(sent)+slack; got.Remaining < least || got.Remaining > most {
		k.Errorf("Holder.Remaining: got %v, want from %v to %v, or 0 for unknown", got.Remaining, least, most)
	}
}

// wantFree checks that a stranger is granted name at once, and gives it back. It leaves its mark: somebody has held the name.
func (k *kit) wantFree(name string) {
	k.Helper()
	h, err := k.try(name, k.owner(), long)
	if err != nil {
		k.Fatalf("the name should be free, but Acquire gives error %v", err)
	}
	k.release(h)
}

// wantNotOwner checks that a claim was refused, in one of the two ways that a backend may refuse it.
func (k *kit) wantNotOwner(what string, err error) {
	k.Helper()
	if !errors.Is(err, lease.ErrMissing) && !errors.Is(err, lease.ErrTaken) {
		k.Fatalf("%s: got error %v, want ErrMissing or ErrTaken", what, err)
	}
}

// wantError checks that err matches want.
func (k *kit) wantError(what string, err, want error) {
	k.Helper()
	if !errors.Is(err, want) {
		k.Fatalf("%s: got error %v, want one that matches %v", what, err, want)
	}
}

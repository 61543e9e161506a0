package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/leasehold-go/leasehold/internal/alarm"
	"github.com/leasehold-go/leasehold/internal/ctxerr"
	"github.com/leasehold-go/leasehold/lease"
)

// Backend keeps leases in memory. Make one with New. It is safe for concurrent use.
type Backend struct {
	clk clock.Clock

	mu      sync.Mutex // guards what follows
	records map[string]*record
	sweepAt int         // look for expired records when there are so many
	last    lease.Token // of all names
	freed   freed
}

var _ lease.Queuer = (*Backend)(nil)

// record is a name that is held or waited for.
// Invariant: a record in the map has a holder; its queue holds only waiters that still wait.
type record struct {
	owner, label string
	token        lease.Token
	expires      time.Time
	queue        []*waiter
}

// waiter is one parked call of Wait.
type waiter struct {
	req     lease.Request
	granted chan lease.Grant // capacity 1: handing over never blocks
	look    chan struct{}    // capacity 1: the first in the queue is to look again
}

// Option sets up a Backend.
type Option func(*Backend)

// WithClock sets the clock by which leases expire. The default is the real one; nil keeps it.
func WithClock(clk clock.Clock) Option {
	return func(b *Backend) {
		if clk != nil {
			b.clk = clk
		}
	}
}

// New returns an empty backend.
func New(opts ...Option) *Backend {
	b := &Backend{clk: clock.New(), records: make(map[string]*record), sweepAt: minSweep}
	for _, opt := range opts {
		opt(b)
	}
	return b
}

// Info says that the backend does not reach beyond this process.
func (b *Backend) Info() lease.Info { return lease.Info{Name: "memory", ProcessLocal: true} }

// Acquire implements lease.Backend. It blocks only on the mutex.
func (b *Backend) Acquire(ctx context.Context, req lease.Request) (lease.Grant, error) {
	if err := errors.Join(req.Validate(), ctxerr.Of(ctx)); err != nil {
		return lease.Grant{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.acquireLocked(b.clk.Now(), req)
}

// Wait implements lease.Queuer. It blocks until the lease is granted or ctx ends; a waiter whose ctx ended has left the queue,
// and passed on what it was granted at the same moment.
func (b *Backend) Wait(ctx context.Context, req lease.Request, held func(lease.Holder)) (lease.Grant, error) {
	if err := errors.Join(req.Validate(), ctxerr.Of(ctx)); err != nil {
		return lease.Grant{}, err
	}
	w := &waiter{req: req, granted: make(chan lease.Grant, 1), look: make(chan struct{}, 1)}
	began, bell := b.clk.Now(), alarm.New(b.clk)
	defer bell.Stop()
	for {
		grant, err := b.enqueue(w)
		var now *lease.HeldError
		if !errors.As(err, &now) {
			return grant, err
		}
		if held != nil {
			held(now.Holder)
		}
		bell.Set(now.Holder.Remaining)
		select {
		case grant := <-w.granted:
			return grant, nil
		case <-bell.C(): // the holder's time is over, unless it renewed
		case <-w.look: // the holder has changed, or w was not the first in the queue before
		case <-ctx.Done():
			b.leave(w)
			now.Waited, now.Cause = b.clk.Since(began), ctxerr.Of(ctx)
			return lease.Grant{}, now
		}
	}
}

// Renew implements lease.Backend. It blocks only on the mutex.
func (b *Backend) Renew(ctx context.Context, claim lease.Claim, ttl time.Duration) (lease.Grant, error) {
	if err := errors.Join(lease.CheckTTL("ttl", ttl), ctxerr.Of(ctx)); err != nil {
		return lease.Grant{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clk.Now()
	r, err := b.ownedLocked(now, claim)
	if err != nil {
		return lease.Grant{}, err
	}
	return r.runFor(now, ttl), nil
}

// Release implements lease.Backend. It blocks only on the mutex.
func (b *Backend) Release(ctx context.Context, claim lease.Claim) error {
	if err := ctxerr.Of(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clk.Now()
	if claim.Token == 0 {
		b.withdrawLocked(now, claim)
		return nil
	}
	r, err := b.ownedLocked(now, claim)
	switch {
	case err == nil:
		b.passOnLocked(now, claim.Name, r)
		return nil
	case errors.Is(err, lease.ErrMissing) && b.freed.last(claim.Name) == claim.Token:
		return nil // nobody has held it since
	}
	return err
}

// Expire ends the present lease on name as if its time were over, and reports whether there was one. The holder is not told: it
// finds out at its next renewal. It is for tests of code that must cope with a loss. It blocks only on the mutex.
func (b *Backend) Expire(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clk.Now()
	r := b.recordLocked(now, name)
	if r == nil {
		return false
	}
	b.passOnLocked(now, name, r)
	return true
}

// acquireLocked grants a free name, or the name that req's owner has. Otherwise it returns *lease.HeldError.
func (b *Backend) acquireLocked(now time.Time, req lease.Request) (lease.Grant, error) {
	r := b.recordLocked(now, req.Name)
	switch {
	case r == nil:
		b.sweepLocked(now)
		r = &record{}
		grant, err := b.grantLocked(now, r, req, req.TTL)
		if err == nil {
			b.records[req.Name] = r
		}
		return grant, err
	case r.owner == req.Owner:
		return r.runFor(now, req.TTL), nil
	}
	return lease.Grant{}, &lease.HeldError{Name: req.Name, Holder: r.holder(now)}
}

// enqueue acquires for w, or sees to it that w stands in the queue.
func (b *Backend) enqueue(w *waiter) (lease.Grant, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	grant, err := b.acquireLocked(b.clk.Now(), w.req)
	if errors.Is(err, lease.ErrHeld) {
		r := b.records[w.req.Name]
		if !slices.Contains(r.queue, w) {
			r.queue = append(r.queue, w)
		}
	}
	return grant, err
}

// leave takes w out of the queue, or passes on what it was granted meanwhile.
func (b *Backend) leave(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.withdrawLocked(b.clk.Now(), lease.Claim{Name: w.req.Name, Owner: w.req.Owner})
}

// recordLocked returns name's record as it is now, nil if the name is free. A holder whose time is over makes way here.
func (b *Backend) recordLocked(now time.Time, name string) *record {
	r := b.records[name]
	if r == nil || now.Before(r.expires) {
		return r
	}
	b.passOnLocked(now, name, r)
	return b.records[name]
}

// ownedLocked returns the record that claim owns; otherwise lease.ErrMissing or lease.ErrTaken.
func (b *Backend) ownedLocked(now time.Time, claim lease.Claim) (*record, error) {
	r := b.recordLocked(now, claim.Name)
	switch {
	case r == nil:
		return nil, fmt.Errorf("memory: %q: %w", claim.Name, lease.ErrMissing)
	case r.owner != claim.Owner || r.token != claim.Token:
		return nil, fmt.Errorf("memory: %q: %w", claim.Name, lease.ErrTaken)
	}
	return r, nil
}

// withdrawLocked gives back whatever claim's owner has, the lease or places in the queue.
func (b *Backend) withdrawLocked(now time.Time, claim lease.Claim) {
	r := b.recordLocked(now, claim.Name)
	if r == nil {
		return
	}
	kept := r.queue[:0]
	for _, w := range r.queue {
		if w.req.Owner != claim.Owner {
			kept = append(kept, w)
		}
	}
	clear(r.queue[len(kept):])
	r.queue = kept
	r.alertFirst()
	if r.owner == claim.Owner {
		b.passOnLocked(now, claim.Name, r)
	}
}

// passOnLocked ends r's present lease and hands the name to the first in the queue; without one the record goes.
func (b *Backend) passOnLocked(now time.Time, name string, r *record) {
	b.freed.add(name, r.token)
	if len(r.queue) == 0 {
		delete(b.records, name)
		return
	}
	w := r.queue[0]
	r.queue[0] = nil
	r.queue = r.queue[1:]
	grant, err := b.grantLocked(now, r, w.req, lease.ClaimTTL(w.req.TTL))
	if err != nil { // tokens are used up: nobody can be granted anything, and the waiters' own deadlines end their waits
		delete(b.records, name)
		return
	}
	w.granted <- grant
	r.alertFirst()
}

// grantLocked gives r to req's owner for ttl.
func (b *Backend) grantLocked(now time.Time, r *record, req lease.Request, ttl time.Duration) (lease.Grant, error) {
	token := max(b.last+1, lease.Token(max(now.UnixMicro(), 0)))
	if token > lease.MaxToken {
		return lease.Grant{}, lease.Permanent(errors.New("memory: no token left below 2^53"))
	}
	b.last = token
	r.owner, r.label, r.token, r.expires = req.Owner, req.Label, token, now
	return r.runFor(now, ttl), nil
}

// runFor makes r's lease run for ttl from now, or as long as it did if that is longer.
func (r *record) runFor(now time.Time, ttl time.Duration) lease.Grant {
	if end := now.Add(ttl); end.After(r.expires) {
		r.expires = end
	}
	return lease.Grant{Token: r.token, TTL: ttl, ExpiresAt: r.expires}
}

// alertFirst makes the first in the queue look again: it is the one whose timer moves the queue on when the holder's time is
// over, and what it knows of that time may be out of date.
func (r *record) alertFirst() {
	if len(r.queue) == 0 {
		return
	}
	select {
	case r.queue[0].look <- struct{}{}:
	default:
	}
}

func (r *record) holder(now time.Time) lease.Holder {
	return lease.Holder{Label: r.label, Token: r.token, Remaining: r.expires.Sub(now)}
}

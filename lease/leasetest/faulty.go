package leasetest

import (
	"context"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/leasehold-go/leasehold/lease"
)

// Faulty wraps inner in a network that fails by plan, and returns it with what controls the faults. At first there are none.
// Delays pass on clk, and real time is never used. The wrapped backend is a lease.Queuer if and only if inner is one; of
// other abilities it has none.
//
//	backend, faults := leasetest.Faulty(memory.New(memory.WithClock(clk)), clk)
//	defer faults.Close()
//	faults.Next(leasetest.OpAcquire, leasetest.Fault{Action: leasetest.DropReply})
func Faulty(inner lease.Backend, clk clock.Clock) (lease.Backend, *Faults) {
	f := newFaults(clk)
	b := faulty{inner: inner, faults: f}
	if q, ok := inner.(lease.Queuer); ok {
		return faultyQueuer{faulty: b, inner: q}, f
	}
	return b, f
}

// faulty is a backend behind a network that fails.
type faulty struct {
	inner  lease.Backend
	faults *Faults
}

// faultyQueuer is a type of its own, so that a backend without a queue does not pretend to have one.
type faultyQueuer struct {
	faulty
	inner lease.Queuer
}

var (
	_ lease.Backend = faulty{}
	_ lease.Queuer  = faultyQueuer{}
)

// Info implements lease.Backend. It never fails.
func (b faulty) Info() lease.Info { return b.inner.Info() }

// Acquire implements lease.Backend.
func (b faulty) Acquire(ctx context.Context, req lease.Request) (lease.Grant, error) {
	return b.faults.call(ctx, newCall(OpAcquire, req), func(ctx context.Context) (lease.Grant, error) {
		return b.inner.Acquire(ctx, req)
	})
}

// Renew implements lease.Backend.
func (b faulty) Renew(ctx context.Context, claim lease.Claim, ttl time.Duration) (lease.Grant, error) {
	return b.faults.call(ctx, Call{Op: OpRenew, Claim: claim, TTL: ttl}, func(ctx context.Context) (lease.Grant, error) {
		return b.inner.Renew(ctx, claim, ttl)
	})
}

// Release implements lease.Backend.
func (b faulty) Release(ctx context.Context, claim lease.Claim) error {
	_, err := b.faults.call(ctx, Call{Op: OpRelease, Claim: claim}, func(ctx context.Context) (lease.Grant, error) {
		return lease.Grant{}, b.inner.Release(ctx, claim)
	})
	return err
}

// Wait implements lease.Queuer.
func (b faultyQueuer) Wait(ctx context.Context, req lease.Request, held func(lease.Holder)) (lease.Grant, error) {
	return b.faults.call(ctx, newCall(OpWait, req), func(ctx context.Context) (lease.Grant, error) {
		return b.inner.Wait(ctx, req, held)
	})
}

func newCall(op Op, req lease.Request) Call {
	return Call{Op: op, Claim: lease.Claim{Name: req.Name, Owner: req.Owner}, TTL: req.TTL}
}

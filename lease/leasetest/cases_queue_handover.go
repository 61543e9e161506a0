package leasetest

import (
	"github.com/leasehold-go/leasehold/lease"
)

var queueHandoverCases = []testCase{
	{
		name: "release-hands-over",
		explanation: "The release that frees a name hands it to the first in line, under a higher token and for ClaimTTL at most, and others see the new " +
			"holder at once. Between two holders the name is never free.",
		needs: queue,
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			w := k.startWait(k.queuer(), lease.Request{Name: k.name("x"), Owner: k.owner(), Label: "next", TTL: long})
			w.wantQueued(h)
			k.release(h)
			next := w.wantGranted()
			k.wantAbove(next, h.claim.Token)
			if got, most := next.grant.TTL, lease.ClaimTTL(long); got <= 0 || got > most {
				k.Errorf("TTL of the hand-over: got %v, want above 0 and at most %v", got, most)
			}
			k.wantHeld(next)
		},
	},
	{
		name:        "handed-over-lease-becomes-a-full-one",
		explanation: "The first renewal makes a handed-over lease run for the TTL that it asks for: the short claim is only for waiters that died.",
		needs:       queue,
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			w := k.waitsAs(h, k.owner(), k.ttl)
			k.release(h)
			next := w.wantGranted()
			claim := *next
			k.renewed(next, long)
			k.pastEnd(&claim)
			k.wantHeld(next)
		},
	},
	{
		name:        "handed-over-lease-expires",
		explanation: "A waiter that died in line is handed the lease and does nothing with it; then the lease ends as any other, and goes to the next in line.",
		needs:       queue,
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			dead, next := k.waitsAs(h, k.owner(), k.ttl), k.waits(h)
			k.release(h)
			lost := dead.wantGranted()
			next.wantWaiting(lost)
			k.pastEnd(lost)
			k.wantAbove(next.wantGrantedWithin(k.ttl), lost.claim.Token)
		},
	},
	{
		name: "sleeping-waiter-gets-nothing-back",
		explanation: "A waiter that sleeps while it is handed the lease, and until that lease has gone to the next, wakes up with nothing: if Wait returns the " +
			"old grant, it is one that the first renewal refuses, and the next holder's lease is untouched.",
		needs: queue,
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			b, wake := k.waitsAsleep(h, k.ttl)
			c := k.waits(h)
			k.release(h)
			k.sleep(k.ttl)
			next := c.wantGrantedWithin(2 * k.ttl)
			k.renewed(next, long)
			wake()
			k.settle()
			switch {
			case b.running():
				b.leave()
			case b.err == nil:
				_, err := k.backend.Renew(k.ctx, b.lease.claim, long)
				k.wantNotOwner("Renew of the grant that was slept through", err)
				k.wantNotOwner("Release of the grant that was slept through", k.backend.Release(k.ctx, b.lease.claim))
			default:
				b.cleanUp()
			}
			k.wantHeld(next)
		},
	},
	{
		name:        "expiry-hands-over",
		explanation: "A holder that dies costs its TTL and little more, then the first in line is served; and not before, for the holder may be alive.",
		needs:       queue,
		run: func(k *kit) {
			h := k.acquire(k.name("x"), k.ttl)
			b, c := k.waits(h), k.waits(h)
			k.justBefore(h)
			b.wantWaiting(h)
			k.pastEnd(h)
			next := b.wantGrantedWithin(k.ttl)
			k.wantAbove(next, h.claim.Token)
			k.release(next)
			c.wantGranted()
		},
	},
	{
		name:        "renewals-keep-the-line-waiting",
		explanation: "Who waits has learnt when the holder's lease would end; when the holder has renewed since, that instant means nothing.",
		needs:       queue,
		run: func(k *kit) {
			h := k.acquire(k.name("x"), k.ttl)
			w := k.waits(h)
			for range 2 {
				k.justBefore(h)
				k.renewed(h, k.ttl)
			}
			former := *h
			k.renewed(h, long)
			k.pastEnd(&former)
			w.wantWaiting(h)
			k.release(h)
			w.wantGranted()
		},
	},
	{
		name: "former-holder-has-no-say",
		explanation: "After the hand-over the former holder's claim is worth nothing: it can neither renew nor free what the next one has, though it has just " +
			"held the name and everything came from its own release.",
		needs: queue,
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			w := k.waits(h)
			k.release(h)
			next := w.wantGranted()
			_, err := k.backend.Renew(k.ctx, h.claim, long)
			k.wantError("Renew by the former holder", err, lease.ErrTaken)
			k.wantError("Release by the former holder", k.backend.Release(k.ctx, h.claim), lease.ErrTaken)
			k.withdraw(k.name("x"), h.claim.Owner)
			k.wantHeld(next)
		},
	},
	{
		name:        "withdrawal-hands-over",
		explanation: "A withdrawal that ends a lease serves the first in line, as a release does: nobody waits for a TTL that was given back.",
		needs:       queue,
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			b, c := k.waits(h), k.waits(h)
			k.withdraw(k.name("x"), h.claim.Owner)
			next := b.wantGranted()
			c.wantWaiting(next)
			k.wantAbove(next, h.claim.Token)
			k.wantHeld(next)
		},
	},
	{
		name: "concurrent-releases-hand-over-once",
		explanation: "Releases of one claim that run at once hand over once: the first in line has the lease, the second still waits, and none of the other " +
			"releases has ended what the first has given.",
		needs: queue,
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			b, c := k.waits(h), k.waits(h)
			errs := make([]error, 16)
			atOnce(len(errs), func(i int) { errs[i] = k.backend.Release(k.ctx, h.claim) })
			done := 0
			for _, err := range errs {
				if err == nil {
					done++
					continue
				}
				k.wantNotOwner("Release after the hand-over", err)
			}
			if done != 1 {
				k.Errorf("%d of %d releases returned nil, want 1: the others came when another held the name", done, len(errs))
			}
			next := b.wantGranted()
			c.wantWaiting(next)
			k.wantHeld(next)
		},
	},
	{
		name: "waiters-never-overlap",
		explanation: "Owners that wait, hold and release as fast as they can, beside others that only try, are never two at a time, all get their turn, and " +
			"tokens rise in the order in which they held the name.",
		needs: queue,
		run: func(k *kit) {
			var inside witness
			errs := make([]error, 8)
			atOnce(len(errs), func(i int) {
				for range 10 {
					if errs[i] = k.passThrough(&inside, i%4 == 3); errs[i] != nil {
						return
					}
				}
			})
			for _, err := range errs {
				if err != nil {
					k.Fatalf("taking turns: got error %v, want none", err)
				}
			}
			inside.check(k)
			k.wantFree(k.name("x"))
		},
	},
}

// passThrough takes the lease on x, by Wait or by one try, shows itself to the witness and gives the lease back.
func (k *kit) passThrough(inside *witness, try bool) error {
	req := lease.Request{Name: k.name("x"), Owner: k.owner(), TTL: long}
	take := func() (lease.Grant, error) { return k.queuer().Wait(k.ctx, req, nil) }
	if try {
		take = func() (lease.Grant, error) { return k.backend.Acquire(k.ctx, req) }
	}
	g, err := take()
	if err != nil {
		if try {
			return nil
		}
		return err
	}
	inside.enter(g.Token)
	inside.leave()
	return k.backend.Release(k.ctx, lease.Claim{Name: req.Name, Owner: req.Owner, Token: g.Token})
}

package leasetest

import "github.com/leasehold-go/leasehold/lease"

var expiryCases = []testCase{
	{
		name: "lease-runs-its-ttl-and-no-longer",
		explanation: "A lease excludes others to its last instant, and is over when its TTL is: the holder may be dead, and nobody else can end it. " +
			"A single try must find it free too, not only those who wait.",
		run: func(k *kit) {
			h := k.acquire(k.name("x"), k.ttl)
			k.justBefore(h)
			k.wantHeld(h)
			k.pastEnd(h)
			k.wantFree(k.name("x"))
		},
	},
	{
		name: "expired-lease-cannot-be-renewed",
		explanation: "A renewal that comes after the end is refused as ErrMissing and brings nothing back: another may have worked in between, and a " +
			"holder that slept past its lease must learn it.",
		run: func(k *kit) {
			h := k.acquire(k.name("x"), k.ttl)
			k.pastEnd(h)
			_, err := k.backend.Renew(k.ctx, h.claim, long)
			k.wantError("Renew of an expired lease", err, lease.ErrMissing)
			k.wantFree(k.name("x"))
		},
	},
	{
		name: "expired-owner-starts-anew",
		explanation: "An expired lease is as if it had never been. The same owner can have the name again, but under a higher token: writes of the " +
			"former grant must be told from those of the new one.",
		run: func(k *kit) {
			h := k.acquire(k.name("x"), k.ttl)
			k.pastEnd(h)
			again := k.acquireAs(k.name("x"), h.claim.Owner, long)
			if again.claim.Token <= h.claim.Token {
				k.Errorf("Acquire after expiry by the same owner: got token %v, want above %v", again.claim.Token, h.claim.Token)
			}
			k.wantHeld(again)
		},
	},
	{
		name: "lease-after-expiry-runs-its-own-ttl",
		explanation: "What is left of an expired lease must not end its successor's: a timer or an index entry of the former grant has no " +
			"power over the next.",
		run: func(k *kit) {
			first := k.acquire(k.name("x"), k.ttl)
			k.pastEnd(first)
			next := k.acquire(k.name("x"), 2*k.ttl)
			k.justBefore(next)
			k.wantHeld(next)
			k.pastEnd(next)
			k.wantFree(k.name("x"))
		},
	},
	{
		name:        "lease-after-release-runs-its-own-ttl",
		explanation: "A release forgets the expiry of what it ended: the next lease on the name ends by its own TTL, not by that of the former.",
		run: func(k *kit) {
			first := k.acquire(k.name("x"), k.ttl)
			k.sleep(k.ttl / 2)
			if err := k.backend.Release(k.ctx, first.claim); err != nil {
				k.Fatalf("Release: got error %v, want nil", err)
			}
			next := k.acquire(k.name("x"), 2*k.ttl)
			k.pastEnd(first)
			k.wantHeld(next)
		},
	},
}

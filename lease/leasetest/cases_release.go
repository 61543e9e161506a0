package leasetest

import "github.com/leasehold-go/leasehold/lease"

var releaseCases = []testCase{
	{
		name:        "release-frees-the-name",
		explanation: "When Release has returned, the very next attempt is granted: nobody waits out a lease that was given back.",
		run: func(k *kit) {
			for range 10 {
				k.release(k.acquire(k.name("x"), long))
			}
		},
	},
	{
		name: "release-is-exact-when-nobody-came",
		explanation: "Release returns nil if and only if nobody else has held the name between the grant and the release. When the lease has expired " +
			"and nobody came, the holder's work was exclusive, and it may know.",
		run: func(k *kit) {
			h := k.acquire(k.name("x"), k.ttl)
			k.pastEnd(h)
			if err := k.backend.Release(k.ctx, h.claim); err != nil {
				k.Errorf("Release after expiry, nobody came: got error %v, want nil", err)
			}
			k.wantFree(k.name("x"))
		},
	},
	{
		name: "release-is-refused-when-taken",
		explanation: "A late finisher never frees the next holder's lease: Release is refused as ErrTaken, and the record stays as it is. Deleting " +
			"without comparing lets a third one in.",
		run: func(k *kit) {
			late := k.acquire(k.name("x"), k.ttl)
			k.pastEnd(late)
			h := k.acquire(k.name("x"), long)
			k.wantError("Release of a name that another holds", k.backend.Release(k.ctx, late.claim), lease.ErrTaken)
			k.wantHeld(h)
			k.renewed(h, long)
		},
	},
	{
		name: "release-is-refused-when-others-came-and-went",
		explanation: "When another has held the name in between and is gone, the record is missing all the same, but Release must not be nil: the " +
			"caller would believe that its work was exclusive.",
		run: func(k *kit) {
			late := k.acquire(k.name("x"), k.ttl)
			k.pastEnd(late)
			k.release(k.acquire(k.name("x"), long))
			k.wantNotOwner("Release after another came and went", k.backend.Release(k.ctx, late.claim))

			late = k.acquire(k.name("y"), k.ttl)
			k.pastEnd(late)
			other := k.acquire(k.name("y"), k.ttl)
			k.pastEnd(other)
			k.wantNotOwner("Release after another's lease came and expired", k.backend.Release(k.ctx, late.claim))
		},
	},
	{
		name:        "release-twice",
		explanation: "A second Release finds the record gone and nobody since: nil again. Shutdown paths release what was released.",
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			k.release(h)
			k.release(h)
			k.wantFree(k.name("x"))
		},
	},
	{
		name:        "release-needs-the-owner",
		explanation: "Release compares the owner: who merely knows the token frees nothing.",
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			err := k.backend.Release(k.ctx, lease.Claim{Name: k.name("x"), Owner: k.owner(), Token: h.claim.Token})
			k.wantNotOwner("Release by another owner", err)
			k.wantHeld(h)
		},
	},
	{
		name: "release-needs-the-token",
		explanation: "Release compares the token: the claim of an earlier grant frees nothing, even if the same owner holds the name again. A delete " +
			"that was delayed in the network must find its target gone.",
		run: func(k *kit) {
			stale := k.acquire(k.name("x"), long)
			k.release(stale)
			h := k.acquireAs(k.name("x"), stale.claim.Owner, long)
			k.wantNotOwner("Release under a stale token", k.backend.Release(k.ctx, stale.claim))
			k.wantHeld(h)
			k.release(h)
		},
	},
}

package leasetest

import "github.com/leasehold-go/leasehold/lease"

var renewCases = []testCase{
	{
		name:        "renew-resets-the-lease",
		explanation: "Renew makes the lease run for the given TTL from now, under the same token, as often as asked.",
		run: func(k *kit) {
			h := k.acquire(k.name("x"), k.ttl)
			for range 3 {
				k.justBefore(h)
				k.renewed(h, k.ttl)
			}
			k.justBefore(h)
			k.wantHeld(h)
			k.pastEnd(h)
			k.wantFree(k.name("x"))
		},
	},
	{
		name: "renew-never-adds",
		explanation: "Renewals do not pile up: after a hundred of them the lease still ends one TTL after the last. If they added up, a holder that " +
			"crashes would block its name for hours.",
		run: func(k *kit) {
			h := k.acquire(k.name("x"), k.ttl)
			for range 100 {
				k.renewed(h, k.ttl)
			}
			if h.grant.TTL > k.ttl {
				k.Errorf("Grant.TTL after renewals: got %v, want at most %v", h.grant.TTL, k.ttl)
			}
			k.pastEnd(h)
			k.wantFree(k.name("x"))
		},
	},
	{
		name: "renew-never-shortens",
		explanation: "Renew makes a lease end no earlier than it did. Requests overtake each other: one that stood on a dying connection comes after " +
			"a later one was confirmed, and would cut a lease that its holder trusts for longer.",
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			late := *h
			k.renewed(&late, k.ttl)
			k.pastEnd(&late)
			k.wantHeld(h)
		},
	},
	{
		name:        "repeated-acquire-never-shortens",
		explanation: "A repetition of Acquire, too, can come late, and makes a lease end no earlier than it did.",
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			late := k.acquireAs(k.name("x"), h.claim.Owner, k.ttl)
			k.pastEnd(late)
			k.wantHeld(h)
		},
	},
	{
		name:        "renew-can-lengthen",
		explanation: "Renew can make a lease run for longer than it was acquired for.",
		run: func(k *kit) {
			h := k.acquire(k.name("x"), k.ttl)
			former := *h
			k.renewed(h, long)
			k.pastEnd(&former)
			k.wantHeld(h)
		},
	},
	{
		name:        "renew-needs-the-owner",
		explanation: "Renew compares the owner: who merely knows the token cannot keep the lease alive, and changes nothing.",
		run: func(k *kit) {
			h := k.acquire(k.name("x"), k.ttl)
			_, err := k.backend.Renew(k.ctx, lease.Claim{Name: k.name("x"), Owner: k.owner(), Token: h.claim.Token}, long)
			k.wantNotOwner("Renew by another owner", err)
			k.wantHeld(h)
			k.pastEnd(h)
			k.wantFree(k.name("x"))
		},
	},
	{
		name: "renew-needs-the-token",
		explanation: "Renew compares the token: a claim of an earlier grant is stale even if the same owner holds the name again, and so is a claim " +
			"without a token. Else a late renewal of a lost lease looks like success.",
		run: func(k *kit) {
			stale := k.acquire(k.name("x"), long)
			k.release(stale)
			h := k.acquireAs(k.name("x"), stale.claim.Owner, long)
			for _, token := range []lease.Token{stale.claim.Token, 0, h.claim.Token + 1, lease.MaxToken} {
				_, err := k.backend.Renew(k.ctx, lease.Claim{Name: k.name("x"), Owner: h.claim.Owner, Token: token}, long)
				k.wantNotOwner("Renew under a token that is not on record", err)
			}
			k.renewed(h, long)
		},
	},
	{
		name: "renew-of-a-taken-name-is-refused",
		explanation: "When another holds the name, a former holder's renewal is refused as ErrTaken, and the present holder's lease grows by nothing: " +
			"renewing without looking at the owner lets two work at once.",
		run: func(k *kit) {
			late := k.acquire(k.name("x"), k.ttl)
			k.pastEnd(late)
			h := k.acquire(k.name("x"), k.ttl)
			_, err := k.backend.Renew(k.ctx, late.claim, long)
			if err == nil || k.exact() { // a slow machine may see h expired, and then it is missing
				k.wantError("Renew of a name that another holds", err, lease.ErrTaken)
			}
			k.wantHeld(h)
			k.pastEnd(h)
			k.wantFree(k.name("x"))
		},
	},
	{
		name: "renew-never-creates",
		explanation: "Renew finds a record or is refused as ErrMissing: after a release, after somebody came and went, and on a name that nobody ever " +
			"had. A renewal that arrives late must not bring a lease back that its holder gave up.",
		run: func(k *kit) {
			_, err := k.backend.Renew(k.ctx, lease.Claim{Name: k.name("never"), Owner: k.owner(), Token: 1}, long)
			k.wantError("Renew of a name that nobody had", err, lease.ErrMissing)
			k.wantFree(k.name("never"))

			h := k.acquire(k.name("x"), long)
			k.release(h)
			_, err = k.backend.Renew(k.ctx, h.claim, long)
			k.wantError("Renew after the release", err, lease.ErrMissing)
			k.wantFree(k.name("x")) // and somebody has come and gone now
			_, err = k.backend.Renew(k.ctx, h.claim, long)
			k.wantError("Renew after another came and went", err, lease.ErrMissing)
			k.wantFree(k.name("x"))
		},
	},
}

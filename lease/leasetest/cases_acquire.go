package leasetest

import (
	"time"

	"github.com/leasehold-go/leasehold/lease"
)

var acquireCases = []testCase{
	{
		name: "grant-has-its-fields",
		explanation: "A grant carries a token, a TTL no longer than asked for, and the expiry as the store states it. Since, if stated, is not in " +
			"the future: trust is counted from it.",
		run: func(k *kit) {
			h := k.acquire(k.name("x"), k.ttl)
			if h.grant.Token == 0 {
				k.Errorf("Grant.Token is 0, want at least 1: 0 stands for no grant")
			}
			if h.grant.ExpiresAt.IsZero() {
				k.Errorf("Grant.ExpiresAt is zero, want the expiry by the store's clock")
			}
			if k.advance == nil && h.grant.Since.After(time.Now()) {
				k.Errorf("Grant.Since is %v after the reply", time.Until(h.grant.Since))
			}
		},
	},
	{
		name:        "acquire-excludes-others",
		explanation: "While a lease runs, nobody else is granted the name.",
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			for range 3 {
				k.wantHeld(h)
			}
			k.release(h)
			k.wantFree(k.name("x"))
		},
	},
	{
		name: "repeated-acquire-returns-the-same-grant",
		explanation: "Acquire is idempotent per owner: when a reply was lost, the repetition must find its own lease under the same token, not " +
			"lose to itself and leave the name busy for a TTL with nobody at work.",
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			for range 3 {
				again := k.acquireAs(k.name("x"), h.claim.Owner, long)
				if again.claim.Token != h.claim.Token {
					k.Fatalf("repeated Acquire by the holder: got token %v, want %v as before", again.claim.Token, h.claim.Token)
				}
			}
			k.wantHeld(h)
		},
	},
	{
		name: "repeated-acquire-runs-the-full-ttl",
		explanation: "A repeated Acquire runs for the full TTL from then on. The owner counts its trust from the repetition that was answered, so a " +
			"lease that still ends with the first attempt would be trusted after its end.",
		run: func(k *kit) {
			first := k.acquire(k.name("x"), k.ttl)
			k.justBefore(first)
			again, err := k.try(k.name("x"), first.claim.Owner, k.ttl)
			if err != nil {
				k.unlessLate(first)
				k.Fatalf("repeated Acquire by the holder: got error %v, want the lease", err)
			}
			k.justBefore(again)
			k.wantHeld(again)
			k.pastEnd(again)
			k.wantFree(k.name("x"))
		},
	},
	{
		name: "repeated-acquire-is-released-once",
		explanation: "Attempts are not counted: one Release ends the lease however often it was acquired. A hold count that a lost reply has raised " +
			"leaves a ghost behind.",
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			k.acquireAs(k.name("x"), h.claim.Owner, long)
			k.acquireAs(k.name("x"), h.claim.Owner, long)
			k.release(h)
			k.wantFree(k.name("x"))
		},
	},
	{
		name: "owners-compare-whole",
		explanation: "Two owners are the same only if all their bytes are: \"job-1\" is not \"job-12\", and not \"JOB-1\". A prefix or pattern match " +
			"would let one enter, renew or free the other's lease.",
		run: func(k *kit) {
			for _, pair := range [][2]string{{"job-1", "job-12"}, {"job-12", "job-1"}, {"job-1", "JOB-1"}, {"job-1", "job-?"}, {"job-1", "*"}} {
				name := k.name(pair[0] + pair[1])
				h := k.acquireAs(name, pair[0], long)
				_, err := k.try(name, pair[1], long)
				k.checkRefusal(err)
				forged := lease.Claim{Name: name, Owner: pair[1], Token: h.claim.Token}
				_, err = k.backend.Renew(k.ctx, forged, long)
				k.wantNotOwner("Renew by another owner under the holder's token", err)
				k.wantNotOwner("Release by another owner under the holder's token", k.backend.Release(k.ctx, forged))
				k.withdraw(name, pair[1])
				k.wantHeld(h)
			}
		},
	},
	{
		name:        "an-owner-may-hold-many-names",
		explanation: "An owner id belongs to a call, not to a name: the same owner on another name is another lease, released by itself.",
		run: func(k *kit) {
			owner := k.owner()
			x, y := k.acquireAs(k.name("x"), owner, long), k.acquireAs(k.name("y"), owner, long)
			k.release(x)
			k.wantFree(k.name("x"))
			k.wantHeld(y)
		},
	},
}

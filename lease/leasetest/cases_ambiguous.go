package leasetest

import (
	"errors"

	"github.com/benbjohnson/clock"

	"github.com/leasehold-go/leasehold/lease"
)

// What these cases send passes through Faulty, so that replies get lost and requests arrive twice.
var ambiguousCases = []testCase{
	{
		name: "acquire-reply-lost",
		explanation: "The attempt took effect and its reply was lost. The next attempt of the same owner returns that very grant, and another owner is " +
			"refused meanwhile; after a withdrawal instead, the name is free at once.",
		run: func(k *kit) {
			faulty, faults := k.faulty()
			faults.Next(OpAcquire, Fault{Action: DropReply})
			req := lease.Request{Name: k.name("x"), Owner: k.owner(), TTL: long}
			k.wantLost(faulty.Acquire(k.ctx, req))
			granted := faults.Calls()[0].Grant
			h, err := k.tryRequest(faulty, req)
			if err != nil {
				k.Fatalf("second attempt: got error %v, want the lease", err)
			}
			if h.claim.Token != granted.Token {
				k.Fatalf("second attempt: got token %v, want %v, which the first was granted", h.claim.Token, granted.Token)
			}
			k.wantHeld(h)
			k.withdraw(k.name("x"), req.Owner)
			k.wantFree(k.name("x"))
		},
	},
	{
		name:        "acquire-arrives-twice",
		explanation: "A request that arrives twice, as when a client resends it unasked, is one grant under one token and ends with one release.",
		run: func(k *kit) {
			faulty, faults := k.faulty()
			faults.Next(OpAcquire, Fault{Action: Duplicate})
			faults.Next(OpAcquire, Fault{Action: Resend})
			for range 2 {
				h, err := k.tryRequest(faulty, lease.Request{Name: k.name("x"), Owner: k.owner(), TTL: long})
				if err != nil {
					k.Fatalf("Acquire: got error %v, want the lease", err)
				}
				k.wantHeld(h)
				k.renewed(h, long)
				k.release(h)
				k.wantFree(k.name("x"))
			}
		},
	},
	{
		name: "renew-reply-lost",
		explanation: "The renewal took effect and its reply was lost. The next one under the same claim succeeds: nothing in the record may change that the " +
			"holder would have to know from a reply.",
		run: func(k *kit) {
			faulty, faults := k.faulty()
			faults.Next(OpRenew, Fault{Action: DropReply})
			h := k.acquire(k.name("x"), long)
			k.wantLost(faulty.Renew(k.ctx, h.claim, long))
			k.renewed(h, long)
			k.wantHeld(h)
		},
	},
	{
		name:        "renew-arrives-twice",
		explanation: "A renewal that arrives twice lengthens the lease no more than once.",
		run: func(k *kit) {
			faulty, faults := k.faulty()
			faults.Next(OpRenew, Fault{Action: Duplicate})
			h := k.acquire(k.name("x"), k.ttl)
			sent := k.now()
			g, err := faulty.Renew(k.ctx, h.claim, k.ttl)
			if err != nil {
				k.unlessLate(h)
				k.Fatalf("Renew by the holder: got error %v, want nil", err)
			}
			k.pastEnd(k.newHeld(lease.Request{Name: k.name("x"), Owner: h.claim.Owner, TTL: k.ttl}, g, sent))
			k.wantFree(k.name("x"))
		},
	},
	{
		name: "release-reply-lost",
		explanation: "The release took effect and its reply was lost; its repetition must not free the next holder. It is nil while nobody has come, " +
			"and refused as soon as somebody has.",
		run: func(k *kit) {
			faulty, faults := k.faulty()
			faults.Next(OpRelease, Fault{Action: DropReply})
			h := k.acquire(k.name("x"), long)
			_, err := lease.Grant{}, faulty.Release(k.ctx, h.claim)
			k.wantLost(lease.Grant{}, err)
			k.release(h) // nobody came
			next := k.acquire(k.name("x"), long)
			k.wantNotOwner("third Release, another holds the name", faulty.Release(k.ctx, h.claim))
			k.wantHeld(next)
		},
	},
	{
		name:        "release-arrives-twice",
		explanation: "A release that arrives twice hands the lease over once. The second must not end the lease of whoever the first has handed it to.",
		needs:       queue,
		run: func(k *kit) {
			faulty, faults := k.faulty()
			faults.Next(OpRelease, Fault{Action: Duplicate})
			h := k.acquire(k.name("x"), long)
			b, c := k.waits(h), k.waits(h)
			if err := faulty.Release(k.ctx, h.claim); err != nil {
				k.Fatalf("Release by the holder: got error %v, want nil", err)
			}
			next := b.wantGranted()
			c.wantWaiting(next)
			k.wantHeld(next)
			k.release(next)
			c.wantGranted()
		},
	},
	{
		name: "wait-reply-lost",
		explanation: "The lease was handed to a waiter and the news was lost. The next call of the same owner returns that grant, and meanwhile nobody else " +
			"has the name.",
		needs: queue,
		run: func(k *kit) {
			faulty, faults := k.faulty()
			faults.Next(OpWait, Fault{Action: DropReply})
			h := k.acquire(k.name("x"), long)
			owner := k.owner()
			w := k.waitsThrough(faulty.(lease.Queuer), h, owner, long)
			k.release(h)
			if !k.comes(w.done, nil) {
				k.Fatalf("the waiter whose turn it is was not served")
			}
			k.wantLost(lease.Grant{}, w.err)
			granted := faults.Calls()[0].Grant
			if granted.Token == 0 {
				k.Fatalf("Wait ended without a grant: %+v", faults.Calls()[0])
			}
			again := k.startWait(k.queuer(), lease.Request{Name: k.name("x"), Owner: owner, TTL: long}).wantGranted()
			if again.claim.Token != granted.Token {
				k.Fatalf("second Wait: got token %v, want %v, which the first was granted", again.claim.Token, granted.Token)
			}
			k.wantHeld(again)
		},
	},
}

// faulty wraps the case's backend. Faults that take time are not used, so the clock does not matter.
func (k *kit) faulty() (lease.Backend, *Faults) {
	b, faults := Faulty(k.backend, clock.New())
	k.Cleanup(faults.Close)
	return b, faults
}

// wantLost checks that a reply was lost, which is Faulty's doing.
func (k *kit) wantLost(_ lease.Grant, err error) {
	k.Helper()
	if !errors.Is(err, ErrInjected) {
		k.Fatalf("got error %v, want the one that was injected", err)
	}
}

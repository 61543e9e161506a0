package leasetest

import (
	"errors"

	"github.com/leasehold-go/leasehold/lease"
)

var queueOrderCases = []testCase{
	{
		name: "wait-takes-a-free-name",
		explanation: "Wait for a free name is granted at once and for the full TTL, as Acquire would be, and is told of no holder: waiting costs nothing " +
			"where nothing has to be waited for.",
		needs: queue,
		run: func(k *kit) {
			w := k.startWait(k.queuer(), lease.Request{Name: k.name("x"), Owner: k.owner(), TTL: k.ttl})
			h := w.wantGranted()
			if w.tells != 0 {
				k.Errorf("held was called %d times, but nobody held the name", w.tells)
			}
			k.wantHeld(h)
			k.release(h)
			k.wantFree(k.name("x"))
		},
	},
	{
		name: "waiters-are-served-in-order",
		explanation: "Waiters are served first come, first served, one at a time, under rising tokens. Without an order a waiter can starve while others " +
			"pass it by.",
		needs: queue,
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			var line []*waiter
			for range 5 {
				line = append(line, k.waits(h))
			}
			k.serve(h, line...)
		},
	},
	{
		name:        "newcomers-stand-at-the-end",
		explanation: "Who comes while the line moves stands behind all who are in it, also right after a hand-over.",
		needs:       queue,
		run: func(k *kit) {
			a := k.acquire(k.name("x"), long)
			b, c := k.waits(a), k.waits(a)
			k.release(a)
			next := b.wantGranted()
			d := k.waits(next)
			k.serve(next, c, d)
		},
	},
	{
		name: "tries-do-not-overtake",
		explanation: "A single try is refused while somebody waits, also at the moment of the release: the lease belongs to the first in line, who may " +
			"not have heard of it yet. Or a name under pressure is never granted to those who wait for it.",
		needs: queue,
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			w := k.waits(h)
			k.release(h)
			_, err := k.try(k.name("x"), k.owner(), long)
			k.checkRefusal(err)
			k.wantHeld(w.wantGranted())
		},
	},
	{
		name: "tries-do-not-overtake-at-expiry",
		explanation: "When the holder's lease expires, it is the first in line whose turn it is: a try that comes at that very moment is refused, even if it " +
			"is the first to find the holder gone.",
		needs: queue,
		run: func(k *kit) {
			h := k.acquire(k.name("x"), k.ttl)
			w, wake := k.waitsAsleep(h, long)
			k.pastEnd(h)
			for range 3 {
				_, err := k.try(k.name("x"), k.owner(), long)
				k.checkRefusal(err)
			}
			wake()
			w.wantGrantedWithin(k.ttl)
		},
	},
	{
		name:        "lines-are-independent",
		explanation: "Each name has its own line: a release serves those who wait for that name and nobody else.",
		needs:       queue,
		run: func(k *kit) {
			x, y := k.acquire(k.name("x"), long), k.acquire(k.name("y"), long)
			wx, wy := k.waits(x), k.waits(y)
			k.release(y)
			wy.wantGranted()
			wx.wantWaiting(x)
			k.release(x)
			wx.wantGranted()
		},
	},
	{
		name: "waiter-is-told-of-the-holder",
		explanation: "Wait calls held when the store confirms that another has the name: callers log who keeps them waiting, and can tell a long queue " +
			"from a store that is down.",
		needs: queue,
		run: func(k *kit) {
			h, err := k.tryRequest(k.backend, lease.Request{Name: k.name("x"), Owner: k.owner(), Label: "holder {1}", TTL: long})
			if err != nil {
				k.Fatalf("Acquire: got error %v, want the lease", err)
			}
			sent := k.now()
			w := k.waits(h)
			w.mu.Lock()
			told := w.holder
			w.mu.Unlock()
			k.checkHolder(told, h, sent)
		},
	},
	{
		name: "wait-by-the-holder-returns-its-grant",
		explanation: "Wait is idempotent per owner as Acquire is: an owner that has the lease, from whatever call, is given it again under the same token " +
			"instead of waiting for itself.",
		needs: queue,
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			for range 2 {
				again := k.startWait(k.queuer(), lease.Request{Name: k.name("x"), Owner: h.claim.Owner, TTL: long}).wantGranted()
				if again.claim.Token != h.claim.Token {
					k.Fatalf("Wait by the holder: got token %v, want %v", again.claim.Token, h.claim.Token)
				}
			}
			k.release(h)
			k.wantFree(k.name("x"))
		},
	},
	{
		name: "repeated-wait-keeps-its-place",
		explanation: "An owner whose Wait ended unknown calls again and is still ahead of those who came later: it has waited all the time. Only an end that " +
			"matches ErrHeld gives the place up, and then this does not apply.",
		needs: queue,
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			b, c := k.waits(h), k.waits(h)
			b.giveUp()
			again := k.waitsAs(h, b.req.Owner, long)
			if errors.Is(b.err, lease.ErrHeld) {
				k.serve(h, c, again)
				return
			}
			k.serve(h, again, c)
		},
	},
	{
		name:        "repeated-wait-returns-the-grant",
		explanation: "An owner that was handed the lease and asks again, by Wait or by Acquire, is given the same grant: the news of it may have been lost.",
		needs:       queue,
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			w := k.waits(h)
			k.release(h)
			next := w.wantGranted()
			again := k.startWait(k.queuer(), lease.Request{Name: k.name("x"), Owner: w.req.Owner, TTL: long}).wantGranted()
			if again.claim.Token != next.claim.Token {
				k.Errorf("Wait after the hand-over: got token %v, want %v", again.claim.Token, next.claim.Token)
			}
			last := k.acquireAs(k.name("x"), w.req.Owner, long)
			if last.claim.Token != next.claim.Token {
				k.Errorf("Acquire after the hand-over: got token %v, want %v", last.claim.Token, next.claim.Token)
			}
			k.wantHeld(last)
		},
	},
}

// serve releases h, then the lease of each in line as soon as it has it, and checks that they are served one at a time in that
// order, under rising tokens. In the end the name is free.
func (k *kit) serve(h *held, line ...*waiter) {
	k.Helper()
	for i, w := range line {
		k.release(h)
		next := w.wantGranted()
		k.wantAbove(next, h.claim.Token)
		for _, rest := range line[i+1:] {
			rest.wantWaiting(next)
		}
		h = next
	}
	k.release(h)
	k.wantFree(h.claim.Name)
}

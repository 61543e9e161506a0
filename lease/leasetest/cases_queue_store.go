package leasetest

import (
	"errors"

	"github.com/leasehold-go/leasehold/lease"
)

var queueStoreCases = []testCase{
	{
		name: "one-line-for-all-clients",
		explanation: "All clients of a store stand in one line: a process that releases does not prefer its own waiters, and one that is served " +
			"lets the other's go next.",
		needs: queue | second,
		run: func(k *kit) {
			here, there := k.queuer(), k.secondQueuer()
			h := k.acquire(k.name("x"), long)
			var line []*waiter
			for _, b := range []lease.Queuer{there, here, here, there, there} {
				line = append(line, k.waitsThrough(b, h, k.owner(), long))
			}
			k.serve(h, line...)
		},
	},
	{
		name:        "leaving-serves-the-other-client",
		explanation: "When a waiter of one client leaves, or is handed the lease and gives it back, the next is served although it waits through another.",
		needs:       queue | second,
		run: func(k *kit) {
			here, there := k.queuer(), k.secondQueuer()
			h := k.acquire(k.name("x"), long)
			b := k.waitsThrough(here, h, k.owner(), long)
			c := k.waitsThrough(there, h, k.owner(), long)
			d := k.waitsThrough(here, h, k.owner(), long)
			b.leave()
			k.release(h)
			c.wantGranted()
			k.withdraw(k.name("x"), c.req.Owner)
			k.serve(d.wantGranted())
		},
	},
	{
		name:        "deleted-record-lets-the-line-move",
		explanation: "When a third party deletes the holder's record, those who wait are served before long, in order: nobody will ever release that lease.",
		needs:       queue | deletion,
		run: func(k *kit) {
			h := k.acquire(k.name("x"), k.ttl)
			b, c := k.waits(h), k.waits(h)
			k.remove(k.TB, k.backend, k.name("x"))
			next := b.wantGrantedWithin(2 * k.ttl)
			k.wantAbove(next, h.claim.Token)
			c.wantWaiting(next)
			k.serve(next, c)
		},
	},
	{
		name: "waiters-survive-forgetting",
		explanation: "A store that forgets everything forgets the line too. Its waiters are not stranded: each is served before long, or its Wait ends " +
			"unknown and the next call is served.",
		needs: queue | forgetting,
		run: func(k *kit) {
			w := k.waits(k.acquire(k.name("x"), k.ttl))
			k.forget(k.TB, k.backend)
			k.sleepUntilEnd(w)
			for range 5 {
				if w.err == nil || errors.Is(w.err, lease.ErrHeld) {
					break
				}
				w = k.startWait(k.queuer(), w.req)
				k.sleepUntilEnd(w)
			}
			k.wantHeld(w.mustHold())
		},
	},
}

func (k *kit) secondQueuer() lease.Queuer {
	k.Helper()
	b := k.second(k.TB, k.backend)
	q, ok := b.(lease.Queuer)
	if !ok {
		k.Fatalf("WithSecond made a %T, which is no lease.Queuer, although the first backend is one", b)
	}
	return q
}

// sleepUntilEnd lets time pass until w has returned, whatever with.
func (k *kit) sleepUntilEnd(w *waiter) {
	k.Helper()
	for range 40 {
		if !w.running() {
			return
		}
		k.sleep(k.ttl / 20)
	}
	if !k.comes(w.done, nil) {
		k.Fatalf("the waiter was stranded")
	}
}

package leasetest

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold/lease"
)

var queueLeaveCases = []testCase{
	{
		name: "cancelled-waiter-leaves",
		explanation: "A waiter whose ctx ends returns soon, with an error that matches ctx's, and leaves the line, at the latest when it is withdrawn: the " +
			"release serves the next. A place that nobody stands on costs everybody behind it.",
		needs: queue,
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			b, c := k.waits(h), k.waits(h)
			b.leave()
			c.wantWaiting(h)
			k.wantHeld(h)
			k.serve(h, c)
		},
	},
	{
		name:        "last-waiter-leaves",
		explanation: "When all who waited have left, the release frees the name for whoever comes.",
		needs:       queue,
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			b, c := k.waits(h), k.waits(h)
			c.leave()
			b.leave()
			k.serve(h)
		},
	},
	{
		name:        "leaving-keeps-the-order",
		explanation: "Who leaves from the head, the middle or the end of the line changes nothing in the order of those who stay.",
		needs:       queue,
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			var line []*waiter
			for range 6 {
				line = append(line, k.waits(h))
			}
			for _, i := range []int{0, 3, 5} {
				line[i].leave()
			}
			k.serve(h, line[1], line[2], line[4])
		},
	},
	{
		name:        "who-left-comes-back-at-the-end",
		explanation: "Leaving gives the place up: the same owner may wait again, behind those who stayed.",
		needs:       queue,
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			b, c := k.waits(h), k.waits(h)
			b.leave()
			again := k.waitsAs(h, b.req.Owner, long)
			k.serve(h, c, again)
		},
	},
	{
		name: "cancelled-wait-takes-nothing",
		explanation: "Wait on a ctx that has ended already takes nothing: no free name, and no place in a line, at the latest when it is withdrawn. Its error " +
			"matches ctx's.",
		needs: queue,
		run: func(k *kit) {
			ctx, cancel := context.WithCancel(k.ctx)
			cancel()
			req := lease.Request{Name: k.name("free"), Owner: k.owner(), TTL: long}
			_, err := k.queuer().Wait(ctx, req, nil)
			k.wantError("Wait with a cancelled ctx", err, context.Canceled)
			k.wantFree(k.name("free"))

			late, cancel := context.WithDeadline(k.ctx, time.Unix(0, 0))
			defer cancel()
			h := k.acquire(k.name("x"), long)
			req.Name = k.name("x")
			_, err = k.queuer().Wait(late, req, nil)
			k.wantError("Wait after the deadline", err, context.DeadlineExceeded)
			if !errors.Is(err, lease.ErrHeld) {
				k.withdraw(req.Name, req.Owner)
			}
			k.serve(h)
		},
	},
	{
		name: "grant-and-cancellation-at-once",
		explanation: "When a waiter is handed the lease at the moment at which it gives up, the lease is not lost between the two: Wait returns it, or an " +
			"error, and after the clean-up that goes with it the next in line is served.",
		needs: queue,
		run: func(k *kit) {
			for i := range 12 {
				h := k.acquire(k.name("x"), long)
				b, wake := k.waitsAsleep(h, long)
				c := k.waits(h)
				release := func() { _ = k.backend.Release(k.ctx, h.claim) }
				switch i % 4 {
				case 0: // it finds both when it wakes
					release()
					b.end()
					wake()
				case 1:
					wake()
					release()
					b.end()
				case 2:
					wake()
					b.end()
					release()
				default:
					moves := []func(){wake, release, b.end}
					atOnce(len(moves), func(j int) { moves[j]() })
				}
				b.leave()
				k.release(c.wantGranted())
				k.wantFree(k.name("x"))
			}
		},
	},
	{
		name: "withdrawn-hand-over-is-passed-on",
		explanation: "An owner that was handed the lease and withdraws, because it never heard of it or has no use for it any more, passes it on at once; " +
			"a second withdrawal takes nothing from the next.",
		needs: queue,
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			b, c, d := k.waits(h), k.waits(h), k.waits(h)
			k.release(h)
			b.wantGranted()
			k.withdraw(k.name("x"), b.req.Owner)
			next := c.wantGranted()
			k.withdraw(k.name("x"), b.req.Owner)
			d.wantWaiting(next)
			k.serve(next, d)
		},
	},
	{
		name:        "strangers-withdrawal-spares-the-line",
		explanation: "A withdrawal of an owner that has neither the lease nor a place changes nothing for the holder and for those who wait.",
		needs:       queue,
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			b, c := k.waits(h), k.waits(h)
			k.withdraw(k.name("x"), k.owner())
			k.wantHeld(h)
			k.serve(h, b, c)
		},
	},
}

package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/lease/leasetest"
	"github.com/leasehold-go/leasehold/mutex"
)

func TestC45_ReleaseTouchesNoOtherLease(t *testing.T) {
	for _, same := range []bool{true, false} {
		t.Run(fmt.Sprint("SameLocker/", same), func(t *testing.T) {
			inBubble(t, func(w *world) {
				other := w.locks
				if !same {
					other = w.locker(w.store)
				}
				a := w.lock("x")
				w.faults.Partition()
				w.until(T)
				w.faults.Heal()
				b := w.lockOn(other, "x", mutex.WithoutRenewal())
				before, _ := w.holder("x")
				wantMatch(w, a.Release(w.ctx), is(lease.ErrLost))
				if after, _ := w.holder("x"); after != before || after.Token != b.Token() {
					w.Errorf("the record changed from %+v to %+v", before, after)
				}
				_, err := w.locks.TryLock(w.ctx, "x")
				wantMatch(w, err, is(lease.ErrHeld))
				w.release(b)
			})
		})
	}
}

// A release that finds another owner says so, although nobody had noticed before.
func TestC45_ReleaseTellsOfAnotherOwner(t *testing.T) {
	inBubble(t, func(w *world) {
		a := w.lock("x")
		w.deleteRecord("x")
		b := w.lockOn(w.locker(w.store), "x", mutex.WithoutRenewal())
		err := a.Release(w.ctx)
		var lost *lease.LostError
		if !errors.As(err, &lost) || lost.Reason != lease.Taken {
			w.Errorf("Release: %v, want a LostError for the reason Taken", err)
		}
		w.wantReleased(a)
		w.wantHolder("x", b)
		w.release(b)
	})
}

func TestC46_ReleaseOnADeadContext(t *testing.T) {
	inBubble(t, func(w *world) {
		ctx, cancel := context.WithCancel(w.ctx)
		h, err := w.locks.Lock(ctx, "x")
		if err != nil {
			w.Fatal(err)
		}
		cancel()
		if err := h.Release(ctx); err != nil {
			w.Error(err)
		}
		w.wantFree("x")
	})
}

func TestC46_ReleaseIntoSilenceIsBounded(t *testing.T) {
	bound := lease.CallBound(T)
	inBubble(t, func(w *world) {
		h := w.lock("x")
		ctx, cancel := context.WithCancel(w.ctx)
		cancel()
		w.faults.Partition()
		released := make(chan error, 1)
		go func() { released <- h.Release(ctx) }()
		synctest.Wait()
		w.wantReleased(h) // at once
		w.until(bound - 1)
		synctest.Wait()
		if len(released) != 0 {
			w.Error("returned too early")
		}
		w.advance(1)
		synctest.Wait()
		wantMatch(w, <-released, is(context.DeadlineExceeded), lease.ErrLost)
		w.advance(T / 2)
		w.wantSent(leasetest.OpRenew, "x", 0)

		w.faults.Heal() // a failed release may be tried again, and keeps its claim
		w.wantHolder("x", h)
		w.release(h)
		w.wantFree("x")
		w.release(h)
		w.wantSent(leasetest.OpRelease, "x", 2)
	})
}

// A lost reply to the delete is no loss: sent again, it finds the lease gone or granted to the next.
func TestC46_RepeatedReleaseAfterALostReply(t *testing.T) {
	for _, taken := range []bool{false, true} {
		inBubble(t, func(w *world) {
			h := w.lock("x")
			w.faults.Next(leasetest.OpRelease, leasetest.Fault{Action: leasetest.DropReply})
			wantMatch(w, h.Release(w.ctx), is(leasetest.ErrInjected), lease.ErrLost)
			if taken {
				w.lock("x")
			}
			w.release(h)
		})
	}
}

func TestC47_ReleaseAfterTheEnd(t *testing.T) {
	t.Run("Noticed", func(t *testing.T) {
		inBubble(t, func(w *world) {
			h := w.lock("x", mutex.WithoutRenewal())
			w.until(T)
			w.wantLost(h, lease.Expired)
			wantMatch(w, h.Release(w.ctx), is(lease.ErrLost))
			if n := len(w.sent(leasetest.OpRelease, "x")); n > 1 || w.now() != T {
				w.Errorf("%d deletes, and now it is %v", n, w.now())
			}
		})
	})
	for _, at := range []time.Duration{trusted(T), T, 2 * T} {
		t.Run(fmt.Sprint("Unnoticed/", at), func(t *testing.T) {
			inBubble(t, func(w *world) {
				ahead := &aheadClock{Mock: w.clk}
				h := w.lock("x", mutex.WithClock(ahead))
				ahead.by = at
				if h.State() != lease.Held || h.Valid() {
					w.Fatalf("want it unnoticed: %s", describe(h))
				}
				wantMatch(w, h.Release(w.ctx), is(lease.ErrLost))
				w.wantLost(h, lease.Expired)
				if n := len(w.sent(leasetest.OpRelease, "x")); n > 1 || w.now() != 0 {
					w.Errorf("%d deletes, and now it is %v", n, w.now())
				}
			})
		})
	}
	t.Run("UnnoticedRenew", func(t *testing.T) {
		inBubble(t, func(w *world) {
			ahead := &aheadClock{Mock: w.clk}
			h := w.lock("x", mutex.WithClock(ahead))
			ahead.by = trusted(T)
			wantMatch(w, h.Renew(w.ctx), is(lease.ErrLost))
			w.wantLost(h, lease.Expired)
			w.wantSent(leasetest.OpRenew, "x", 0)
		})
	})
}

// aheadClock shows a later time than its timers go by: those fire late.
type aheadClock struct {
	*clock.Mock
	by time.Duration // changed only while everybody is blocked
}

func (c *aheadClock) Now() time.Time                  { return c.Mock.Now().Add(c.by) }
func (c *aheadClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
func (c *aheadClock) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }

func TestC48_NothingComesAfterARelease(t *testing.T) {
	for name, fault := range map[string]leasetest.Fault{
		"Success":          {After: time.Second},
		"Error":            {Action: leasetest.DropRequest, Before: time.Second},
		"ReachesTheStore":  {Action: leasetest.Late, Before: time.Second},
		"HangsUntilHungUp": {Action: leasetest.Hang},
	} {
		for _, heed := range []bool{true, false} {
			t.Run(fmt.Sprint(name, "/HeedsCtx/", heed), func(t *testing.T) {
				if !heed && fault.Action == leasetest.Hang {
					t.Skip("hangs for ever")
				}
				inBubble(t, func(w *world) {
					l := w.locks
					if !heed {
						l = w.locker(deaf{w.net})
					}
					h := w.lockOn(l, "x")
					w.faults.Next(leasetest.OpRenew, fault)
					w.until(R)
					w.wantSent(leasetest.OpRenew, "x", 1)
					w.release(h)
					w.wantReleased(h)
					w.wantFree("x")
					w.advance(2 * time.Second)
					if n := w.goroutines(); n != 0 || w.timers() != 0 {
						w.Errorf("%d goroutines and %d timers left", n, w.timers())
					}
					calls := len(w.faults.Calls())
					w.advance(100 * T)
					if n := len(w.faults.Calls()) - calls; n != 0 {
						w.Errorf("%d calls in 100 TTL after the release", n)
					}
					w.wantFree("x")
				})
			})
		}
	}
}

func TestC49_StoppedRenewalSkipsNoDelete(t *testing.T) {
	inBubble(t, func(w *world) {
		for i := range 1000 {
			net, faults := leasetest.Faulty(w.store, w.clk)
			h := w.lockOn(w.locker(net), "x")
			faults.Next(leasetest.OpRenew, leasetest.Fault{Action: leasetest.Hang}) // until its ctx ends
			renewed := make(chan error, 1)
			go func() { renewed <- h.Renew(w.ctx) }()
			if i%2 == 0 {
				synctest.Wait() // in flight for certain
			}
			w.release(h)
			wantMatch(w, <-renewed, is(lease.ErrReleased), lease.ErrLost)
			w.wantFree("x")
			if n := faults.Count(leasetest.OpRelease); n != 1 || h.State() != lease.Released {
				w.Fatalf("%d deletes, %s", n, describe(h))
			}
		}
	})
}

func TestC50_ReleaseFromAnywhere(t *testing.T) {
	inBubble(t, func(w *world) {
		h := w.lock("x")
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { w.release(h) })
		}
		all.Wait()
		w.wantSent(leasetest.OpRelease, "x", 1)
		w.wantReleased(h)
		wantMatch(w, h.Renew(w.ctx), is(lease.ErrReleased), lease.ErrLost)
		wantMatch(w, h.RenewFor(w.ctx, time.Minute), is(lease.ErrReleased), lease.ErrLost)
		wantMatch(w, context.Cause(h.Context()), is(lease.ErrReleased))
		if err := h.Close(); err != nil {
			w.Error(err)
		}
		w.wantSent(leasetest.OpRelease, "x", 1)
	})
}

// Those who come while the delete is under way wait for it and get its outcome.
func TestC50_ConcurrentReleasesShareTheOutcome(t *testing.T) {
	boom := errors.New("boom")
	inBubble(t, func(w *world) {
		h := w.lock("x")
		w.faults.Next(leasetest.OpRelease, leasetest.Fault{Action: leasetest.DropRequest, Before: time.Second, Err: boom})
		errs := make(chan error, 100)
		for range cap(errs) {
			go func() { errs <- h.Release(w.ctx) }()
		}
		w.advance(time.Second)
		synctest.Wait()
		if len(errs) != cap(errs) {
			w.Errorf("%d have returned", len(errs))
		}
		for range cap(errs) {
			wantMatch(w, <-errs, is(boom), lease.ErrLost)
		}
		w.wantSent(leasetest.OpRelease, "x", 1)
		w.release(h)
	})
}

func TestC51_CloseReleasesEverything(t *testing.T) {
	down := errors.New("down")
	inBubble(t, func(w *world) {
		l := w.locker(w.net)
		handles := make([]*lease.Handle, 50)
		for i := range handles {
			handles[i] = w.lockOn(l, fmt.Sprintf("key%d.", i))
		}
		var waiters []<-chan result
		for range 10 {
			waiters = append(waiters, w.waiting(l, w.ctx, "key3."))
		}
		w.faults.Plan(func(op leasetest.Op, name string) leasetest.Fault {
			if op == leasetest.OpRelease && name == "key7." {
				return fail(down)
			}
			return leasetest.Fault{}
		})
		ctx, cancel := context.WithCancel(w.ctx)
		cancel() // shutdown is when contexts are dead
		err := l.Close(ctx)
		wantMatch(w, err, is(down))
		if strings.Count(err.Error(), "key") != 1 || !strings.Contains(err.Error(), `"key7."`) {
			w.Errorf("error %q, want it to name key7. only", err)
		}
		for i, h := range handles {
			w.wantLost(h, lease.Closed)
			if i == 7 {
				w.wantHolder(h.Name(), h)
			} else {
				w.wantFree(h.Name())
			}
		}
		for _, got := range waiters {
			wantMatch(w, w.result(got).err, is(lease.ErrClosed), lease.ErrHeld)
		}
		calls := len(w.faults.Calls())
		_, err = l.Lock(w.ctx, "x")
		wantMatch(w, err, is(lease.ErrClosed))
		_, err = l.TryLock(w.ctx, "x")
		wantMatch(w, err, is(lease.ErrClosed))
		wantMatch(w, l.Do(w.ctx, "x", nothing), is(lease.ErrClosed))
		if again := l.Close(w.ctx); again == nil || again.Error() != err.Error() && !errors.Is(again, down) {
			w.Errorf("second Close: %v", again)
		}
		if n := len(w.faults.Calls()) - calls; n != 0 {
			w.Errorf("%d calls after Close", n)
		}
		if n := supervised(l); n != 0 {
			w.Errorf("%d leases are still in the books", n)
		}
	})
}

func nothing(context.Context, *lease.Handle) error { return nil }

func TestC51_CloseTakesOneBoundNotFifty(t *testing.T) {
	inBubble(t, func(w *world) {
		l := w.locker(w.net)
		for i := range 50 {
			w.lockOn(l, fmt.Sprint("key", i))
		}
		w.faults.Partition()
		closed := make(chan error, 1)
		go func() { closed <- l.Close(w.ctx) }()
		w.until(lease.CallBound(T) - 1)
		synctest.Wait()
		if len(closed) != 0 {
			w.Error("returned too early")
		}
		w.advance(1)
		synctest.Wait()
		if len(closed) != 1 {
			w.Fatal("has not returned")
		}
		wantMatch(w, <-closed, is(context.DeadlineExceeded))
	})
}

// A call of Lock that wins while Close runs is given back, or lost as closed: nothing stays.
func TestC51_CloseRacesLock(t *testing.T) {
	inBubble(t, func(w *world) {
		for range rounds(5000) {
			l := w.locker(w.net)
			var all sync.WaitGroup
			for i := range 3 {
				all.Go(func() {
					h, err := l.Lock(w.ctx, fmt.Sprint("x", i%2))
					if (h == nil) != (err != nil) {
						w.Errorf("handle %v, error %v", h, err)
					}
					if err != nil {
						if !errors.Is(err, lease.ErrClosed) {
							w.Errorf("Lock: %v", err)
						}
						return
					}
					<-h.Done()
					if lost := new(lease.LostError); !errors.As(h.Err(), &lost) || lost.Reason != lease.Closed {
						w.Errorf("ended with %v", h.Err())
					}
				})
			}
			all.Go(func() {
				if err := l.Close(w.ctx); err != nil {
					w.Error(err)
				}
			})
			all.Wait()
			w.wantFree("x0")
			w.wantFree("x1")
			if n := supervised(l); n != 0 {
				w.Fatalf("%d leases are still in the books", n)
			}
		}
	})
}

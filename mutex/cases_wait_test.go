package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/clockctx"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/lease/leasetest"
	"github.com/leasehold-go/leasehold/mutex"
)

// In a bubble synctest.Wait returns only when the waiter is blocked: one that spins would hang the test.
func TestC12_WaitingCostsNothing(t *testing.T) {
	t.Run("Queue", func(t *testing.T) {
		inBubble(t, func(w *world) {
			a := w.lock("x")
			got := w.waiting(w.locks, w.ctx, "x")
			w.advance(time.Hour)
			w.wantSent(leasetest.OpWait, "x", 1)
			w.release(a)
			w.granted(got)
		})
	})
	t.Run("Poll", func(t *testing.T) {
		inPollingBubble(t, func(w *world) {
			a := w.lock("x")
			got := w.waiting(w.locks, w.ctx, "x", mutex.WithRand(seeded(1)))
			attempts := func() int { return len(w.sent(leasetest.OpAcquire, "x")) - 1 }
			if n := attempts(); n > 2 {
				w.Errorf("%d attempts with the clock stopped, want at most 2", n)
			}
			const minute = 60
			for range minute {
				w.advance(time.Second)
			}
			if n := attempts(); n < minute || n > 3*minute {
				w.Errorf("%d attempts in a minute, want about two a second", n)
			}
			w.release(a)
			w.advance(P)
			w.granted(got)
		})
	})
	t.Run("NeverCloserThanMinPollGap", func(t *testing.T) {
		inPollingBubble(t, func(w *world) { // WithRand gives 0: as often as can be
			w.lock("x")
			w.waiting(w.locks, w.ctx, "x")
			w.advance(10 * time.Second)
			checkGaps(w, w.sentAt(leasetest.OpAcquire, "x")[1:], mutex.MinPollGap, P)
		})
	})
	t.Run("NeverFurtherThanMaxPollGap", func(t *testing.T) {
		inPollingBubble(t, func(w *world) {
			w.lock("x")
			w.waiting(w.locks, w.ctx, "x", mutex.WithRand(func() float64 { return 1 }))
			w.advance(10 * time.Second)
			checkGaps(w, w.sentAt(leasetest.OpAcquire, "x")[1:], mutex.MinPollGap, P)
		})
	})
}

func checkGaps(t testing.TB, at []time.Duration, least, most time.Duration) {
	t.Helper()
	if len(at) < 2 {
		t.Errorf("only %d instants", len(at))
	}
	for i := 1; i < len(at); i++ {
		if gap := at[i] - at[i-1]; gap < least || gap > most {
			t.Errorf("gap %v before %v, want %v to %v", gap, at[i], least, most)
		}
	}
}

func seeded(seed uint64) func() float64 { return rand.New(rand.NewPCG(seed, 0)).Float64 }

const herd = 100

// spread runs herd callers, each with randomness of its own, and returns when the nth call of op of each was sent, in order.
func spread(t *testing.T, seed uint64, op leasetest.Op, d time.Duration) [herd][]time.Duration {
	var at [herd][]time.Duration
	inPollingBubble(t, func(w *world) {
		for i := range herd {
			name := fmt.Sprint("name", i)
			if op == leasetest.OpRenew {
				w.lock(name, mutex.WithRand(seeded(seed+uint64(i))))
				continue
			}
			w.lock(name)
			w.waiting(w.locks, w.ctx, name, mutex.WithRand(seeded(seed+uint64(i))))
		}
		w.advance(d)
		for i := range herd {
			at[i] = w.sentAt(op, fmt.Sprint("name", i))
			if op == leasetest.OpAcquire {
				at[i] = at[i][1:] // the holder's
			}
		}
	})
	return at
}

// checkSpread checks that the nth calls of all do not come together.
func checkSpread(t *testing.T, at [herd][]time.Duration, n int, least time.Duration) {
	t.Helper()
	buckets := make(map[time.Duration]int)
	var all []time.Duration
	for _, mine := range at {
		buckets[mine[n].Truncate(time.Millisecond)]++
		all = append(all, mine[n])
	}
	for ms, count := range buckets {
		if count > herd/10 {
			t.Errorf("call %d: %d of %d within the millisecond at %v", n+1, count, herd, ms)
		}
	}
	if got := slices.Max(all) - slices.Min(all); got < least {
		t.Errorf("call %d: all within %v, want a spread of %v", n+1, got, least)
	}
}

func TestC13_PollsSpread(t *testing.T) {
	at := spread(t, 1, leasetest.OpAcquire, 10*time.Second)
	for n := 1; n <= 4; n++ { // the second to the fifth attempt
		checkSpread(t, at, n, 25*time.Millisecond)
	}
	if again := spread(t, 1, leasetest.OpAcquire, 10*time.Second); fmt.Sprint(again) != fmt.Sprint(at) {
		t.Error("the same seed gives another schedule")
	}
}

func TestC13_RenewalsSpread(t *testing.T) {
	at := spread(t, 1, leasetest.OpRenew, 6*R)
	for n := range 5 {
		checkSpread(t, at, n, R/10/2)
	}
	for _, mine := range at {
		checkGaps(t, append([]time.Duration{0}, mine...), R-R/10, R)
	}
	if again := spread(t, 1, leasetest.OpRenew, 6*R); fmt.Sprint(again) != fmt.Sprint(at) {
		t.Error("the same seed gives another schedule")
	}
}

func TestC14_CancelEndsAWaitAtOnce(t *testing.T) {
	for name, run := range map[string]func(*testing.T, func(*world), ...mutex.Option){"Queue": inBubble, "Poll": inPollingBubble} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				w.lock("x")
				timers := w.timers()
				ctx, cancel := context.WithCancel(w.ctx)
				got := w.waiting(w.locks, ctx, "x", mutex.WithWait(time.Hour))
				calls := len(w.faults.Calls())
				cancel()
				r := w.result(got) // no time passes
				wantMatch(w, r.err, is(context.Canceled, lease.ErrHeld))
				if n := w.timers() - timers; n != 0 {
					w.Errorf("%d timers left", n)
				}
				if n := len(w.faults.Calls()) - calls; n != 0 {
					w.Errorf("%d calls after the cancellation", n)
				}
			})
		})
	}
}

func TestC14_CancelledBeforeTheCall(t *testing.T) {
	inBubble(t, func(w *world) {
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(w.ctx)
		cancel(why)
		_, err := w.locks.Lock(ctx, "x")
		wantMatch(w, err, is(context.Canceled, why), lease.ErrHeld)
		_, err = w.locks.TryLock(ctx, "x")
		wantMatch(w, err, is(context.Canceled, why), lease.ErrHeld)
		if n := len(w.faults.Calls()); n != 0 {
			w.Errorf("%d calls, want none", n)
		}
		w.wantFree("x")
	})
}

func TestC15_ReleaseBetweenAttemptAndPark(t *testing.T) {
	inBubble(t, func(w *world) {
		for range 1000 {
			a := w.lock("x")
			got := make(chan *lease.Handle)
			go func() {
				h, err := w.locks.Lock(w.ctx, "x")
				if err != nil {
					w.Error(err)
				}
				got <- h
			}()
			go w.release(a)
			if h := <-got; h != nil { // no time passes
				w.release(h)
			}
		}
	})
}

// No notification is ever seen by a waiter that polls.
func TestC15_PollingNeedsNoNotification(t *testing.T) {
	for _, jitter := range []float64{0, 0.5, 1} {
		inPollingBubble(t, func(w *world) {
			a := w.lock("x")
			got := w.waiting(w.locks, w.ctx, "x", mutex.WithRand(func() float64 { return jitter }))
			w.until(time.Minute)
			w.release(a)
			w.advance(P)
			w.wantHeld(w.granted(got))
		})
	}
}

func TestC15_LostHandOverIsFound(t *testing.T) {
	inBubble(t, func(w *world) {
		a := w.lock("x")
		w.faults.Next(leasetest.OpWait, leasetest.Fault{Action: leasetest.DropReply})
		got := w.waiting(w.locks, w.ctx, "x", mutex.WithRand(func() float64 { return 1 }))
		w.until(time.Second)
		w.release(a)
		w.advance(P)
		w.wantHeld(w.granted(got))
	})
}

func TestC16_WaitAndTTLAreIndependent(t *testing.T) {
	inBubble(t, func(w *world) {
		a := w.lock("x")
		b := w.waiting(w.locks, w.ctx, "x")
		c := w.waiting(w.locks, w.ctx, "x", mutex.WithWait(3500*time.Millisecond))
		w.until(3500*time.Millisecond - 1)
		w.stillWaiting(c)
		w.advance(1)
		wantMatch(w, w.result(c).err, is(lease.ErrHeld, context.DeadlineExceeded))
		w.until(time.Minute)
		w.stillWaiting(b)
		w.release(a)
		w.wantHeld(w.granted(b))
	}, mutex.WithTTL(time.Second))
}

func TestC17_ErrorsAreToldApart(t *testing.T) {
	down := errors.New("connection refused")
	deadline := func(w *world) (context.Context, func()) {
		ctx, cancel := clockctx.WithTimeout(w.ctx, w.clk, time.Second)
		return ctx, cancel
	}
	cancelled := func(w *world) (context.Context, func()) {
		ctx, cancel := context.WithCancel(w.ctx)
		w.clk.AfterFunc(time.Second, cancel)
		return ctx, cancel
	}
	none := func(w *world) (context.Context, func()) { return w.ctx, func() {} }
	for _, c := range []struct {
		name string
		held bool
		ctx  func(w *world) (context.Context, func())
		opts []mutex.Option
		is   []error
		not  []error
	}{
		{"HeldTry", true, none, []mutex.Option{mutex.WithWait(0)}, is(lease.ErrHeld), is(context.Canceled, context.DeadlineExceeded)},
		{"HeldWaitOver", true, none, []mutex.Option{mutex.WithWait(time.Second)}, is(lease.ErrHeld, context.DeadlineExceeded), is(context.Canceled)},
		{"HeldDeadline", true, deadline, nil, is(lease.ErrHeld, context.DeadlineExceeded), is(context.Canceled)},
		{"HeldCancelled", true, cancelled, nil, is(lease.ErrHeld, context.Canceled), is(context.DeadlineExceeded)},
		{"DownTry", false, none, []mutex.Option{mutex.WithWait(0)}, is(down), is(lease.ErrHeld, context.Canceled, context.DeadlineExceeded)},
		{"DownWaitOver", false, none, []mutex.Option{mutex.WithWait(time.Second)}, is(down, context.DeadlineExceeded), is(lease.ErrHeld, context.Canceled)},
		{"DownDeadline", false, deadline, nil, is(down, context.DeadlineExceeded), is(lease.ErrHeld, context.Canceled)},
		{"DownCancelled", false, cancelled, nil, is(down, context.Canceled), is(lease.ErrHeld, context.DeadlineExceeded)},
	} {
		for store, run := range map[string]func(*testing.T, func(*world), ...mutex.Option){"Queue": inBubble, "Poll": inPollingBubble} {
			t.Run(c.name+store, func(t *testing.T) {
				run(t, func(w *world) {
					if c.held {
						w.lock("x", mutex.WithLabel("host-1"))
					} else {
						w.faults.Plan(func(op leasetest.Op, _ string) leasetest.Fault { return fail(down) })
					}
					ctx, cancel := c.ctx(w)
					defer cancel()
					got := w.waiting(w.locks, ctx, "x", c.opts...)
					w.until(time.Second)
					r := w.result(got)
					wantMatch(w, r.err, c.is, append(c.not, lease.ErrInvalid, lease.ErrClosed, lease.ErrLost, lease.ErrNotOwner, lease.ErrPermanent)...)
					var held *lease.HeldError
					if errors.As(r.err, &held) != c.held {
						w.Fatalf("%T, want *HeldError: %v", r.err, c.held)
					}
					if c.held && (held.Name != "x" || held.Holder.Label != "host-1" || held.Waited != r.at) {
						w.Errorf("details %+v", held)
					}
				})
			})
		}
	}
}

// Contention that was seen before the store went down is not the last news.
func TestC17_LastNewsDecides(t *testing.T) {
	down := errors.New("connection refused")
	inPollingBubble(t, func(w *world) {
		w.lock("x")
		got := w.waiting(w.locks, w.ctx, "x", mutex.WithWait(10*time.Second), mutex.WithRand(seeded(1)))
		w.until(5 * time.Second)
		w.faults.Plan(failing(leasetest.OpAcquire, fail(down)))
		w.until(10 * time.Second)
		wantMatch(w, w.result(got).err, is(down, context.DeadlineExceeded), lease.ErrHeld)
	})
}

func TestC18_SilentStoreEndsNoDeadline(t *testing.T) {
	for _, action := range []leasetest.Action{leasetest.Hang} {
		inBubble(t, func(w *world) {
			h := w.lock("held")
			w.faults.Plan(func(leasetest.Op, string) leasetest.Fault { return leasetest.Fault{Action: action} })

			lock := w.waiting(w.locks, w.ctx, "x", mutex.WithWait(500*time.Millisecond))
			ctx, cancel := clockctx.WithTimeout(w.ctx, w.clk, 200*time.Millisecond)
			defer cancel()
			try, renew := make(chan error, 1), make(chan error, 1)
			go func() { _, err := w.locks.TryLock(ctx, "y"); try <- err }()
			go func() { renew <- h.Renew(ctx) }()
			w.until(200*time.Millisecond - 1)
			if len(try) != 0 || len(renew) != 0 {
				w.Error("returned too early")
			}
			w.advance(1)
			synctest.Wait()
			wantMatch(w, <-try, is(context.DeadlineExceeded), lease.ErrHeld)
			wantMatch(w, <-renew, is(context.DeadlineExceeded), lease.ErrLost)
			w.wantHeld(h)
			w.until(500 * time.Millisecond)
			wantMatch(w, w.result(lock).err, is(context.DeadlineExceeded), lease.ErrHeld)
			w.faults.Plan(nil)
		})
	}
}

// TryLock without any deadline is bounded too.
func TestC18_TryLockIsBounded(t *testing.T) {
	inBubble(t, func(w *world) {
		w.faults.Next(leasetest.OpAcquire, leasetest.Fault{Action: leasetest.Hang})
		got := w.waiting(w.locks, w.ctx, "x", mutex.WithWait(0))
		w.until(lease.CallBound(T) - 1)
		w.stillWaiting(got)
		w.advance(1)
		wantMatch(w, w.result(got).err, is(context.DeadlineExceeded), lease.ErrHeld)
	})
}

func TestC19_TimedOutWaiterTakesNothingLater(t *testing.T) {
	for name, run := range map[string]func(*testing.T, func(*world), ...mutex.Option){"Queue": inBubble, "Poll": inPollingBubble} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				a := w.lock("x")
				b := w.waiting(w.locks, w.ctx, "x", mutex.WithWait(5*time.Second))
				w.until(6 * time.Second)
				wantMatch(w, w.result(b).err, is(lease.ErrHeld))
				w.release(a)
				calls := len(w.faults.Calls())
				for range 10 {
					w.wantFree("x")
					w.advance(time.Minute)
				}
				if n := len(w.faults.Calls()) - calls; n != 0 {
					w.Errorf("%d calls after the end", n)
				}
				if n := w.timers(); n != 0 {
					w.Errorf("%d timers left", n)
				}
				w.lock("x")
			})
		})
	}
}

// takeOver lets a holder with ttl die after it has held for about hold, right after a renewal, and checks that a waiter gets the lease after ttl, at most late later.
func takeOver(w *world, ttl, hold, late time.Duration, opts ...mutex.Option) {
	w.Helper()
	a := w.lock("x", mutex.WithTTL(ttl))
	other := w.locker(w.store)
	if late > 0 {
		other = w.locker(leasetest.WithoutQueue(w.store))
	}
	b := w.waiting(other, w.ctx, "x", opts...)
	w.until(hold)
	w.stillWaiting(b)
	renewed := w.sentAt(leasetest.OpRenew, "x")
	last := renewed[len(renewed)-1]
	w.faults.Partition()
	w.until(last + ttl - 1)
	w.stillWaiting(b)
	w.wantLost(a, lease.Expired)
	w.advance(1 + late)
	r := w.result(b)
	if r.err != nil || r.at < last+ttl || r.at > last+ttl+late {
		w.Errorf("taken over at %v with error %v, want %v and at most %v later", r.at, r.err, last+ttl, late)
	}
	w.wantHolder("x", r.h)
	if err := other.Close(w.ctx); err != nil {
		w.Error(err)
	}
}

func TestC20_TakeOverAfterACrash(t *testing.T) {
	t.Run("Queue", func(t *testing.T) { inBubble(t, func(w *world) { takeOver(w, T, 2*time.Minute, 0) }) })
	for _, jitter := range []float64{0, 0.5, 1} {
		t.Run(fmt.Sprint("Poll", jitter), func(t *testing.T) {
			inBubble(t, func(w *world) { takeOver(w, T, 2*time.Minute, P, mutex.WithRand(func() float64 { return jitter })) })
		})
	}
}

func TestC21_WaiterGoesByTheHoldersTTL(t *testing.T) {
	short := mutex.WithTTL(time.Second)
	t.Run("Queue", func(t *testing.T) { inBubble(t, func(w *world) { takeOver(w, time.Minute, 10*time.Minute, 0, short) }) })
	t.Run("Poll", func(t *testing.T) {
		inBubble(t, func(w *world) {
			takeOver(w, time.Minute, 10*time.Minute, P, short, mutex.WithRand(func() float64 { return 1 }))
		})
	})
}

func TestC22_TryAtTheEdgeOfExpiry(t *testing.T) {
	inBubble(t, func(w *world) {
		w.lock("x", mutex.WithoutRenewal())
		w.until(T - 1)
		_, err := w.locks.TryLock(w.ctx, "x")
		wantMatch(w, err, is(lease.ErrHeld))
		w.advance(1)
		w.lock("x")
	})
}

package mutex_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/lease/leasetest"
	"github.com/leasehold-go/leasehold/mutex"
)

// record keeps what an observer is told.
type record struct {
	mu     sync.Mutex
	kinds  []string
	events []lease.Event
}

func (r *record) note(kind string) func(lease.Event) {
	return func(e lease.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.kinds = append(r.kinds, kind)
		r.events = append(r.events, e)
	}
}

func (r *record) option() mutex.Option {
	return mutex.WithObserver(lease.Observer{
		Waiting: r.note("Waiting"), Acquired: r.note("Acquired"), Refused: r.note("Refused"), Renewed: r.note("Renewed"),
		RenewFailing: r.note("RenewFailing"), Recovered: r.note("Recovered"), Lost: r.note("Lost"), Released: r.note("Released"),
	})
}

// take returns what was told since the last take.
func (r *record) take(w *world) (string, []lease.Event) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	kinds, events := strings.Join(r.kinds, " "), r.events
	r.kinds, r.events = nil, nil
	for _, e := range events {
		if e.Name != "x" || !e.At.Equal(w.clk.Now()) && e.At.After(w.clk.Now()) {
			w.Errorf("event %+v", e)
		}
	}
	return kinds, events
}

func TestObserver_Life(t *testing.T) {
	down := errors.New("down")
	inBubble(t, func(w *world) {
		var r record
		first := w.lock("x")
		got := w.waiting(w.locks, w.ctx, "x", r.option())
		w.until(time.Second)
		w.release(first)
		h := w.granted(got)
		kinds, events := r.take(w)
		if kinds != "Waiting Acquired" || events[0].Token != 0 || events[1].Token != h.Token() || events[1].Waited != time.Second || events[1].Remaining != trusted(T) {
			w.Fatalf("%s %+v", kinds, events)
		}

		w.until(time.Second + R)
		kinds, events = r.take(w)
		e := events[0]
		// What is left after a renewal is not what was left before it (C70).
		if kinds != "Renewed" || e.Remaining != trusted(T) || e.Margin != trusted(T)-R || e.Remaining != h.TrustedUntil().Sub(e.At) {
			w.Fatalf("%s %+v", kinds, events)
		}

		w.faults.Plan(failing(leasetest.OpRenew, fail(down)))
		w.advance(R + 15*time.Second)
		kinds, events = r.take(w)
		if e := events[0]; kinds != "RenewFailing" || e.Err != down || e.Remaining != trusted(T)-R || e.Token != h.Token() {
			w.Fatalf("%s %+v", kinds, events)
		}
		w.faults.Plan(nil)
		w.until(w.now() + 4*time.Second)
		if kinds, events = r.take(w); kinds != "Recovered Renewed" || events[0].Remaining != trusted(T) {
			w.Fatalf("%s %+v", kinds, events)
		}

		w.release(h)
		if kinds, events = r.take(w); kinds != "Released" || events[0].Token != h.Token() {
			w.Fatalf("%s %+v", kinds, events)
		}
	})
}

// An outage of a thousand tries is told once, and so is its end (C69).
func TestObserver_OneWordPerOutage(t *testing.T) {
	inBubble(t, func(w *world) {
		var r record
		h := w.lock("x", r.option())
		r.take(w)
		w.faults.Plan(failing(leasetest.OpRenew, fail(nil)))
		w.wantLostAt(h, trusted(T), lease.Expired)
		kinds, events := r.take(w)
		if kinds != "RenewFailing Lost" || events[1].Reason != lease.Expired || !errors.Is(events[1].Err, lease.ErrLost) || !errors.Is(events[1].Err, leasetest.ErrInjected) {
			w.Fatalf("%s %+v", kinds, events)
		}
		if n := len(w.sent(leasetest.OpRenew, "x")); n < 5 {
			w.Errorf("%d tries only", n)
		}
		_ = h.Close()
		if kinds, _ := r.take(w); kinds != "" {
			w.Errorf("%s after the loss", kinds)
		}
	})
}

func TestObserver_Refused(t *testing.T) {
	inBubble(t, func(w *world) {
		var r record
		w.lock("x")
		_, err := w.locks.TryLock(w.ctx, "x", r.option())
		kinds, events := r.take(w)
		if kinds != "Refused" || events[0].Err != err || !errors.Is(err, lease.ErrHeld) || events[0].Waited != 0 {
			w.Fatalf("%s %+v", kinds, events)
		}
		got := w.waiting(w.locks, w.ctx, "x", r.option(), mutex.WithWait(time.Second))
		w.advance(time.Second)
		err = w.result(got).err
		if kinds, events = r.take(w); kinds != "Waiting Refused" || events[1].Err != err || events[1].Waited != time.Second {
			w.Fatalf("%s %+v", kinds, events)
		}
	})
}

// A thousand polls are told once.
func TestObserver_WaitingOnce(t *testing.T) {
	inPollingBubble(t, func(w *world) {
		var r record
		w.lock("x")
		w.waiting(w.locks, w.ctx, "x", r.option())
		w.advance(10 * time.Second)
		if kinds, _ := r.take(w); kinds != "Waiting" {
			w.Errorf("%s", kinds)
		}
	})
}

// The reasons of a loss are told apart (C72).
func TestC72_Reasons(t *testing.T) {
	down := errors.New("down")
	for _, c := range []struct {
		reason lease.Reason
		lose   func(w *world, l *mutex.Locker)
		opts   []mutex.Option
		is     error
	}{
		{lease.Expired, func(w *world, l *mutex.Locker) { w.faults.Plan(failing(leasetest.OpRenew, fail(down))) }, nil, down},
		{lease.Missing, func(w *world, l *mutex.Locker) { w.deleteRecord("x") }, nil, lease.ErrMissing},
		{lease.Taken, func(w *world, l *mutex.Locker) {
			w.deleteRecord("x")
			w.lockOn(w.locker(w.store), "x", mutex.WithoutRenewal())
		}, nil, lease.ErrTaken},
		{lease.MaxHold, func(w *world, l *mutex.Locker) {}, []mutex.Option{mutex.WithMaxHold(R / 2)}, nil},
		{lease.Closed, func(w *world, l *mutex.Locker) { _ = l.Close(w.ctx) }, nil, nil},
	} {
		t.Run(c.reason.String(), func(t *testing.T) {
			inBubble(t, func(w *world) {
				var r record
				l := w.locker(w.net)
				h := w.lockOn(l, "x", append(c.opts, r.option())...)
				r.take(w)
				c.lose(w, l)
				w.until(T)
				lost := w.wantLost(h, c.reason)
				if c.is != nil && !errors.Is(lost, c.is) {
					w.Errorf("%v does not match %v", lost, c.is)
				}
				if c.is == nil && lost.Err != nil {
					w.Errorf("%v carries %v", lost, lost.Err)
				}
				kinds, events := r.take(w)
				if last := events[len(events)-1]; !strings.HasSuffix(kinds, "Lost") || last.Reason != c.reason || last.Err != h.Err() || last.Remaining != 0 {
					w.Errorf("%s %+v", kinds, last)
				}
			})
		})
	}
}

// Hooks run after the state has changed and all signals were given.
func TestObserver_SignalsComeFirst(t *testing.T) {
	inBubble(t, func(w *world) {
		var h *lease.Handle
		var seen []string
		look := func(e lease.Event) { seen = append(seen, describe(h)) }
		h = w.lock("x", mutex.WithObserver(lease.Observer{Lost: look}), mutex.WithoutRenewal())
		w.until(T)
		synctest.Wait()
		want := describe(h)
		if len(seen) != 1 || seen[0] != want || h.State() != lease.Lost {
			w.Errorf("the hook saw %v, want %s", seen, want)
		}
	})
}

// The hook runs beside the delete, after the signals: a slow one delays neither.
func TestObserver_ReleasedDelaysNoRelease(t *testing.T) {
	inBubble(t, func(w *world) {
		out := make(chan struct{})
		var h *lease.Handle
		var seen lease.State
		h = w.lock("x", mutex.WithObserver(lease.Observer{Released: func(lease.Event) { seen = h.State(); <-out }}))
		w.release(h)
		w.wantReleased(h)
		w.wantFree("x")
		close(out)
		synctest.Wait()
		if seen != lease.Released {
			w.Errorf("the hook saw the state %v", seen)
		}
	})
}

// A hook that panics breaks nothing.
func TestObserver_PanicIsSwallowed(t *testing.T) {
	boom := func(lease.Event) { panic("boom") }
	inBubble(t, func(w *world) {
		h := w.lock("x", mutex.WithObserver(lease.Observer{
			Waiting: boom, Acquired: boom, Refused: boom, Renewed: boom, RenewFailing: boom, Recovered: boom, Lost: boom, Released: boom,
		}))
		w.faults.Next(leasetest.OpRenew, fail(nil))
		w.advance(10 * T)
		w.wantHeld(h)
		w.release(h)
		w.wantFree("x")
	})
}

func TestWithOnWait(t *testing.T) {
	for store, run := range map[string]func(*testing.T, func(*world), ...mutex.Option){"Queue": inBubble, "Poll": inPollingBubble} {
		t.Run(store, func(t *testing.T) {
			run(t, func(w *world) {
				holder := w.lock("x", mutex.WithLabel("host-7"))
				var told []mutex.Waiting
				got := w.waiting(w.locks, w.ctx, "x", mutex.WithRand(func() float64 { return 1 }), mutex.WithOnWait(func(x mutex.Waiting) { told = append(told, x) }))
				w.advance(5 * time.Second)
				w.stillWaiting(got)
				if len(told) == 0 || store == "Poll" && len(told) < 5 {
					w.Fatalf("told %d times", len(told))
				}
				var last time.Duration
				for i, x := range told {
					if x.Name != "x" || x.Attempt != i+1 || x.Waited < last || x.Holder.Label != "host-7" || x.Holder.Token != holder.Token() ||
						x.Holder.Remaining <= 0 || x.Holder.Remaining > T {
						w.Errorf("told %+v", x)
					}
					last = x.Waited
				}
				w.release(holder)
				w.advance(P)
				w.granted(got)
			})
		})
	}
}

// A try does not wait, so it tells nobody of waiting.
func TestWithOnWait_NotForATry(t *testing.T) {
	inBubble(t, func(w *world) {
		w.lock("x")
		_, err := w.locks.TryLock(w.ctx, "x", mutex.WithOnWait(func(x mutex.Waiting) { w.Errorf("told %+v", x) }))
		wantMatch(w, err, is(lease.ErrHeld))
		var held *lease.HeldError
		if !errors.As(err, &held) || held.Waited != 0 || held.Cause != nil {
			w.Errorf("details %+v", held)
		}
	})
}

// First come, first served, and the queue outlives those who leave it.
func TestLock_ServesInOrder(t *testing.T) {
	inBubble(t, func(w *world) {
		h := w.lock("x")
		var waiters []<-chan result
		var cancels []context.CancelFunc
		for range 10 {
			ctx, cancel := context.WithCancel(w.ctx)
			cancels = append(cancels, cancel)
			waiters = append(waiters, w.waiting(w.locks, ctx, "x"))
		}
		for i, got := range waiters {
			if i%3 == 1 {
				cancels[i]()
				wantMatch(w, w.result(got).err, is(context.Canceled))
			}
		}
		for i, got := range waiters {
			if i%3 == 1 {
				continue
			}
			w.stillWaiting(got)
			w.release(h)
			next := w.granted(got)
			if next.Token() <= h.Token() {
				w.Errorf("waiter %d: token %d after %d", i, next.Token(), h.Token())
			}
			h = next
		}
		for _, cancel := range cancels {
			cancel()
		}
	})
}

func TestMaxTTL(t *testing.T) {
	inBubble(t, func(w *world) {
		h := w.lock("x", mutex.WithTTL(lease.MaxTTL), mutex.WithoutRenewal())
		if h.TrustedUntil().Before(w.clk.Now()) || h.ExpiresAt().Before(w.clk.Now()) {
			w.Fatalf("trusted until %v, expires at %v", h.TrustedUntil(), h.ExpiresAt())
		}
		w.advance(100 * 24 * time.Hour)
		w.wantHeld(h)
		w.release(h)
		w.wantFree("x")
	})
}

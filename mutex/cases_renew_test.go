package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/backends/memory"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/lease/leasetest"
	"github.com/leasehold-go/leasehold/mutex"
)

func TestC23_DefaultsKeepALongHold(t *testing.T) {
	for name, run := range map[string]func(*testing.T, func(*world), ...mutex.Option){"Queue": inBubble, "Poll": inPollingBubble} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				h := w.lock("x")
				var contenders []<-chan result
				for i := range 5 {
					contenders = append(contenders, w.waiting(w.locks, w.ctx, "x", mutex.WithRand(seeded(uint64(i)))))
				}
				w.until(20 * T)
				w.wantHeld(h)
				for _, c := range contenders {
					w.stillWaiting(c)
				}
				renewals := append([]time.Duration{0}, w.sentAt(leasetest.OpRenew, "x")...)
				checkGaps(w, renewals, R-R/10, R)
				if n := len(renewals) - 1; n < 20*3 {
					w.Errorf("%d renewals in 20 TTL, want at least 60", n)
				}
			}, mutex.WithRand(seeded(7)))
		})
	}
}

// A renewal that is late by more than the lease finds another owner, and takes nothing from it.
func TestC24_RenewalChecksTheOwner(t *testing.T) {
	inBubble(t, func(w *world) {
		a := w.lock("x")
		w.faults.Next(leasetest.OpRenew, leasetest.Fault{Action: leasetest.Late, Before: T})
		w.faults.Plan(failing(leasetest.OpRenew, fail(nil)))
		w.until(T)
		w.wantLost(a, lease.Expired)
		sent := len(w.sent(leasetest.OpRenew, "x"))
		b := w.lockOn(w.locker(w.store), "x", mutex.WithoutRenewal())
		w.until(R + T - 1)
		before, _ := w.holder("x")
		w.advance(1)
		if c := w.sent(leasetest.OpRenew, "x")[0]; c.Reached != 1 || c.Grant.Token != 0 {
			w.Fatalf("got %+v, want a renewal that reached the store and was refused", c)
		}
		if after, _ := w.holder("x"); after.Token != b.Token() || after.Remaining != before.Remaining-1 {
			w.Errorf("the record changed from %+v to %+v within a nanosecond", before, after)
		}
		wantMatch(w, a.Renew(w.ctx), is(lease.ErrLost))
		w.wantSent(leasetest.OpRenew, "x", sent)
		w.release(b)
	})
}

func TestC24_OtherRecordIsUnchanged(t *testing.T) {
	inBubble(t, func(w *world) {
		a := w.lock("x")
		w.deleteRecord("x")
		b := w.lockOn(w.locker(w.store), "x", mutex.WithoutRenewal())
		w.until(time.Second)
		before, _ := w.holder("x")
		wantMatch(w, a.Renew(w.ctx), is(lease.ErrLost, lease.ErrNotOwner))
		w.wantLost(a, lease.Taken)
		if after, _ := w.holder("x"); after != before {
			w.Errorf("the record changed from %+v to %+v", before, after)
		}
		w.release(b)
	})
}

func TestC25_CameAndWentMeanwhile(t *testing.T) {
	t.Run("PastTheEnd", func(t *testing.T) {
		inBubble(t, func(w *world) {
			a := w.lock("x")
			w.faults.Partition()
			w.until(T)
			other := w.locker(w.store)
			b := w.lockOn(other, "x")
			w.release(b)
			w.faults.Heal()
			wantMatch(w, a.Renew(w.ctx), is(lease.ErrLost))
			w.wantLost(a, lease.Expired)
			w.advance(T)
			w.wantFree("x")
			if next := w.lock("x"); next.Token() <= b.Token() {
				w.Errorf("token %d after %d", next.Token(), b.Token())
			}
		})
	})
	for _, came := range []bool{true, false} {
		t.Run(fmt.Sprint("WithinTheTrust/", came), func(t *testing.T) {
			inBubble(t, func(w *world) {
				a := w.lock("x")
				w.until(time.Second)
				w.deleteRecord("x")
				if came {
					w.release(w.lockOn(w.locker(w.store), "x"))
				}
				w.wantLostAt(a, R, lease.Missing)
				w.wantFree("x")
				wantMatch(w, a.Renew(w.ctx), is(lease.ErrLost))
				calls := len(w.faults.Calls())
				w.advance(3 * T)
				if n := len(w.faults.Calls()) - calls; n != 0 {
					w.Errorf("%d calls after the loss", n)
				}
			})
		})
	}
}

func TestC26_HiccupIsNoLoss(t *testing.T) {
	kinds := map[string]error{"timeout": context.DeadlineExceeded, "EOF": io.EOF, "canceled": context.Canceled, "permanent": lease.Permanent(errors.New("NOPERM"))}
	for _, text := range []string{"dial tcp: connection refused", "LOADING", "BUSY", "MISCONF", "OOM", "READONLY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "pool timeout"} {
		kinds[text] = errors.New(text)
	}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				h := w.lock("x")
				end := trusted(T) - 5*time.Second
				w.faults.Plan(failing(leasetest.OpRenew, fail(kind)))
				w.until(end)
				w.wantHeld(h)
				failed := w.sentAt(leasetest.OpRenew, "x")
				if len(failed) < 3 || failed[0] != R {
					w.Errorf("attempts at %v, want at least 3 from %v on", failed, R)
				}
				checkGaps(w, failed, minRetryGap, T/8)
				w.faults.Plan(nil)
				w.until(trusted(T) - 1)
				w.wantHeld(h)
				all := w.sentAt(leasetest.OpRenew, "x")
				first := all[len(failed)]
				if h.TrustedUntil().Sub(w.start) != first+trusted(T) {
					w.Errorf("trusted until %v after a renewal sent at %v", h.TrustedUntil().Sub(w.start), first)
				}
				w.until(first + 5*R)
				w.wantHeld(h)
				checkGaps(w, w.sentAt(leasetest.OpRenew, "x")[len(failed):], R, R)
			})
		})
	}
}

func TestC27_EachHoldRenewsByItself(t *testing.T) {
	t.Run("AfterALoss", func(t *testing.T) {
		inBubble(t, func(w *world) {
			a := w.lock("x")
			w.until(R + time.Second)
			w.deleteRecord("x")
			wantMatch(w, a.Renew(w.ctx), is(lease.ErrLost))
			checkRenewals(w, 10*T)
		})
	})
	t.Run("AfterARelease", func(t *testing.T) {
		inBubble(t, func(w *world) {
			w.release(w.lock("x"))
			checkRenewals(w, 10*T)
		})
	})
}

// checkRenewals takes x and checks that it is renewed every R for as long as d.
func checkRenewals(w *world, d time.Duration) {
	w.Helper()
	before := len(w.sent(leasetest.OpRenew, "x"))
	began := w.now()
	h := w.lock("x")
	w.advance(d)
	w.wantHeld(h)
	at := w.sentAt(leasetest.OpRenew, "x")[before:]
	for i, got := range at {
		if want := began + time.Duration(i+1)*R; got != want {
			w.Errorf("renewal %d at %v, want %v", i+1, got, want)
		}
	}
	if len(at) != int(d/R) {
		w.Errorf("%d renewals, want %d", len(at), d/R)
	}
}

func TestC28_EndOfTheLockCtxEndsOnlyTheContext(t *testing.T) {
	type key struct{}
	inBubble(t, func(w *world) {
		ctx, cancel := context.WithCancel(context.WithValue(w.ctx, key{}, "value"))
		h, err := w.locks.Lock(ctx, "x")
		if err != nil {
			w.Fatal(err)
		}
		if h.Context().Value(key{}) != "value" || h.Context().Err() != nil {
			w.Error("Context is no child of the ctx given to Lock")
		}
		cancel()
		if !errors.Is(context.Cause(h.Context()), context.Canceled) {
			w.Errorf("cause %v, want context.Canceled", context.Cause(h.Context()))
		}
		w.advance(10 * T)
		if h.State() != lease.Held || !h.Valid() || isClosed(h.Lost()) || isClosed(h.Done()) || h.Err() != nil {
			w.Fatalf("%v", describe(h))
		}
		w.wantSent(leasetest.OpRenew, "x", 30)
		w.release(h)
		w.wantFree("x")
	})
}

func TestC29_LostReplyToARenewal(t *testing.T) {
	inBubble(t, func(w *world) {
		h := w.lock("x")
		w.faults.Next(leasetest.OpRenew, leasetest.Fault{Action: leasetest.DropReply})
		w.until(2*R - 1)
		w.wantHeld(h)
		calls := w.sent(leasetest.OpRenew, "x")
		if len(calls) != 2 || calls[1].Err != nil || calls[0].Claim != calls[1].Claim {
			w.Fatalf("renewals %+v, want one whose reply is lost and a good one under the same claim", calls)
		}
		if got, want := h.TrustedUntil(), calls[1].Start.Add(trusted(T)); !got.Equal(want) {
			w.Errorf("trusted until %v, want %v", got, want)
		}
	})
}

// A call is bounded by 5 s here, so a slow answer is one that takes 4 s.
func TestC30_TrustCountsFromTheRequest(t *testing.T) {
	const slow = 4 * time.Second
	inBubble(t, func(w *world) {
		w.faults.Plan(func(leasetest.Op, string) leasetest.Fault { return leasetest.Fault{After: slow} })
		got := w.waiting(w.locks, w.ctx, "x", mutex.WithWait(0))
		w.until(slow)
		h := w.granted(got)
		if got := h.TrustedUntil().Sub(w.start); got != trusted(T) {
			w.Errorf("trusted until %v, want %v", got, trusted(T))
		}
		if left := h.Remaining(); left != trusted(T)-slow {
			w.Errorf("%v left, want %v", left, trusted(T)-slow)
		}
		shown := h.ExpiresAt()
		for n := range 5 {
			sent := time.Duration(n+1) * R
			w.until(sent + slow - 1)
			before := h.TrustedUntil()
			if h.ExpiresAt().Before(shown) {
				w.Errorf("ExpiresAt went back from %v to %v", shown, h.ExpiresAt())
			}
			shown = h.ExpiresAt()
			w.advance(1)
			w.wantHeld(h)
			if got := h.TrustedUntil().Sub(w.start); got != sent+trusted(T) || h.TrustedUntil().Before(before) {
				w.Errorf("trusted until %v, want %v", got, sent+trusted(T))
			}
		}
		w.faults.Plan(nil)
	})
}

func TestC31_RenewResetsAndNeverAdds(t *testing.T) {
	inBubble(t, func(w *world) {
		h := w.lock("x")
		check := func() {
			t.Helper()
			if holder, ok := w.holder("x"); !ok || holder.Remaining > T {
				w.Fatalf("held %v, the record runs for %v, want at most %v", ok, holder.Remaining, T)
			}
			if left := h.Remaining(); left > trusted(T) {
				w.Fatalf("trusted for %v", left)
			}
		}
		last := h.TrustedUntil()
		for range 100 {
			if err := h.Renew(w.ctx); err != nil {
				w.Fatal(err)
			}
			check()
			if h.TrustedUntil().Before(last) {
				w.Fatal("the end of trust went back")
			}
			last = h.TrustedUntil()
			w.advance(time.Millisecond)
		}
		before := len(w.sent(leasetest.OpRenew, "x"))
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if err := h.Renew(w.ctx); err != nil {
					w.Error(err)
				}
			})
		}
		all.Wait()
		check()
		if n := len(w.sent(leasetest.OpRenew, "x")) - before; n > 100 {
			w.Errorf("%d requests for 100 renewals", n)
		}
	})
}

func TestC31_ConcurrentRenewsShareARequest(t *testing.T) {
	inBubble(t, func(w *world) {
		h := w.lock("x")
		w.faults.Plan(failing(leasetest.OpRenew, leasetest.Fault{After: time.Second}))
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if err := h.Renew(w.ctx); err != nil {
					w.Error(err)
				}
			})
		}
		w.advance(2 * time.Second)
		all.Wait()
		if n := len(w.sent(leasetest.OpRenew, "x")); n > 2 {
			w.Errorf("%d requests, want the first caller's and one for all others", n)
		}
		w.faults.Plan(nil)
	})
}

func TestC33_StuckNameDelaysNoOther(t *testing.T) {
	inBubble(t, func(w *world) {
		const n = 100
		handles := make([]*lease.Handle, n)
		for i := range handles {
			handles[i] = w.lock(fmt.Sprint("name", i))
		}
		w.faults.Plan(func(op leasetest.Op, name string) leasetest.Fault {
			if name == "name0" {
				return leasetest.Fault{Action: leasetest.HangForever}
			}
			return leasetest.Fault{}
		})
		w.until(R)
		if got := w.goroutines(); got != n+1 {
			w.Errorf("%d goroutines for %d handles and one hung call", got, n)
		}
		w.wantLostAt(handles[0], trusted(T), lease.Expired)
		w.until(10 * T)
		for i, h := range handles[1:] {
			w.wantHeld(h)
			at := w.sentAt(leasetest.OpRenew, h.Name())
			if len(at) != 30 {
				w.Fatalf("handle %d: %d renewals, want 30", i+1, len(at))
			}
			for k, got := range at {
				if want := time.Duration(k+1) * R; got != want {
					w.Fatalf("handle %d: renewal %d at %v, want %v", i+1, k+1, got, want)
				}
			}
		}
		w.wantSent(leasetest.OpRenew, "name0", 1)
		w.faults.Plan(nil)
	})
}

// frozen is an observer whose Renewed hook holds up the actor, as a scheduler does that gives a process no time.
type frozen struct {
	in, out chan struct{}
	once    sync.Once
}

func newFrozen() *frozen { return &frozen{in: make(chan struct{}), out: make(chan struct{})} }

func (f *frozen) option() mutex.Option {
	return mutex.WithObserver(lease.Observer{Renewed: func(lease.Event) {
		f.once.Do(func() { close(f.in); <-f.out })
	}})
}

func TestC34_PauseGivesOneRenewal(t *testing.T) {
	inBubble(t, func(w *world) {
		f := newFrozen()
		h := w.lock("x", f.option())
		w.until(R)
		<-f.in
		w.until(R + 5*R/2)
		w.wantSent(leasetest.OpRenew, "x", 1)
		close(f.out)
		w.wantSent(leasetest.OpRenew, "x", 2)
		w.wantHeld(h)
		w.until(R + 5*R/2 + R - 1)
		w.wantSent(leasetest.OpRenew, "x", 2)
		w.advance(1)
		w.wantSent(leasetest.OpRenew, "x", 3)
		w.wantHeld(h)
	})
}

func TestC35_PanicReleases(t *testing.T) {
	inBubble(t, func(w *world) {
		boom := new(int)
		func() {
			defer func() {
				if got := recover(); got != any(boom) {
					w.Errorf("recovered %v, want the value that was thrown", got)
				}
			}()
			_ = w.locks.Do(w.ctx, "x", func(context.Context, *lease.Handle) error { panic(boom) })
		}()
		w.wantFree("x")
		if n := w.goroutines(); n != 0 || w.timers() != 0 {
			w.Errorf("%d goroutines and %d timers left", n, w.timers())
		}
	})
}

func TestC35_LongestHold(t *testing.T) {
	const hold = 5 * T
	inBubble(t, func(w *world) {
		h := w.lock("x", mutex.WithMaxHold(hold))
		w.wantLostAt(h, hold, lease.MaxHold)
		w.wantHolder("x", h) // the record outlives the handle
		w.wantSent(leasetest.OpRenew, "x", int(hold/R)-1)
		w.advance(T)
		w.wantFree("x")
		wantMatch(w, h.Renew(w.ctx), is(lease.ErrLost))
	})
}

// The end of the longest hold is no later than that of trust.
func TestC35_LongestHoldExtendsNothing(t *testing.T) {
	inBubble(t, func(w *world) {
		h := w.lock("x", mutex.WithMaxHold(5*T))
		w.until(5*T - R - 1)
		w.faults.Partition()
		w.wantLostAt(h, 5*T, lease.MaxHold)
	})
	inBubble(t, func(w *world) {
		h := w.lock("x", mutex.WithMaxHold(5*T))
		w.faults.Partition()
		w.wantLostAt(h, trusted(T), lease.Expired)
	})
}

func TestC36_EachLockerKeepsToItsStore(t *testing.T) {
	inBubble(t, func(w *world) {
		store2 := memory.New(memory.WithClock(w.clk))
		net2, faults2 := leasetest.Faulty(store2, w.clk)
		locks2 := w.locker(net2)
		a, b := w.lock("x"), w.lockOn(locks2, "x")
		w.until(5 * T)
		w.wantHeld(a)
		w.wantHeld(b)
		owner := w.sent(leasetest.OpAcquire, "x")[0].Claim.Owner
		for _, c := range faults2.Calls() {
			if c.Claim.Owner == owner {
				w.Errorf("a call for the first store came to the second: %+v", c)
			}
		}
		w.release(a)
		w.wantHeld(b)
		if err := locks2.Close(w.ctx); err != nil {
			w.Error(err)
		}
		faults2.Close()
	})
}

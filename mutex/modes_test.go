package mutex_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/lease/leasetest"
	"github.com/leasehold-go/leasehold/mutex"
)

func TestStrictRenewal(t *testing.T) {
	down := errors.New("down")
	for name, c := range map[string]struct {
		fault leasetest.Fault
		at    time.Duration
		is    error
	}{
		"Error":     {fail(down), R, down},
		"ReplyLost": {leasetest.Fault{Action: leasetest.DropReply, Err: down}, R, down},
		"Hang":      {leasetest.Fault{Action: leasetest.Hang}, R + lease.CallBound(T), context.DeadlineExceeded},
		"HangDeaf":  {leasetest.Fault{Action: leasetest.HangForever}, trusted(T), nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				h := w.lock("x", mutex.WithStrictRenewal())
				w.faults.Next(leasetest.OpRenew, c.fault)
				w.wantLostAt(h, c.at, lease.Expired)
				if c.is != nil {
					wantMatch(w, h.Err(), is(lease.ErrLost, c.is))
				}
				w.wantSent(leasetest.OpRenew, "x", 1)
			})
		})
	}
}

func TestStrictRenewal_ConfirmedOnesKeepIt(t *testing.T) {
	inBubble(t, func(w *world) {
		h := w.lock("x", mutex.WithStrictRenewal())
		w.advance(10 * T)
		w.wantHeld(h)
		// A caller who goes away leaves no unknown outcome: the call goes on.
		w.faults.Next(leasetest.OpRenew, leasetest.Fault{After: time.Second})
		ctx, cancel := context.WithCancel(w.ctx)
		renewed := make(chan error, 1)
		go func() { renewed <- h.Renew(ctx) }()
		synctest.Wait()
		cancel()
		wantMatch(w, <-renewed, is(context.Canceled), lease.ErrLost)
		w.advance(2 * time.Second)
		w.wantHeld(h)
		// An unknown outcome of a manual renewal is a loss too.
		w.faults.Next(leasetest.OpRenew, fail(nil))
		wantMatch(w, h.Renew(w.ctx), is(lease.ErrLost, leasetest.ErrInjected))
		w.wantLost(h, lease.Expired)
	})
}

func TestManualRenewal(t *testing.T) {
	inBubble(t, func(w *world) {
		h := w.lock("x", mutex.WithoutRenewal())
		for range 5 {
			w.advance(T - time.Second)
			w.wantHeld(h)
			if err := h.Renew(w.ctx); err != nil {
				w.Fatal(err)
			}
		}
		w.wantSent(leasetest.OpRenew, "x", 5)
		w.wantLostAt(h, w.now()+trusted(T), lease.Expired)
		if err := h.Err().(*lease.LostError).Err; err != nil {
			w.Errorf("the loss carries %v, but nothing had failed", err)
		}
		w.wantSent(leasetest.OpRenew, "x", 5)
		wantMatch(w, h.Renew(w.ctx), is(lease.ErrLost))
		w.wantSent(leasetest.OpRenew, "x", 5)
	})
}

func TestRenew_LooksAtCtxThenStateThenBackend(t *testing.T) {
	inBubble(t, func(w *world) {
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(w.ctx)
		cancel(why)
		h := w.lock("x")
		wantMatch(w, h.Renew(ctx), is(context.Canceled, why), lease.ErrLost)
		w.release(h)
		wantMatch(w, h.Renew(ctx), is(context.Canceled), lease.ErrReleased)
		wantMatch(w, h.Renew(w.ctx), is(lease.ErrReleased))
		wantMatch(w, h.RenewFor(w.ctx, 1), is(lease.ErrInvalid))
		w.wantSent(leasetest.OpRenew, "x", 0)
	})
}

// A manual renewal that fails leaves the handle held until its trust ends, and is told to the caller.
func TestRenew_UnknownOutcome(t *testing.T) {
	for _, opts := range [][]mutex.Option{nil, {mutex.WithoutRenewal()}} {
		inBubble(t, func(w *world) {
			h := w.lock("x", opts...)
			w.faults.Next(leasetest.OpRenew, fail(nil))
			wantMatch(w, h.Renew(w.ctx), is(leasetest.ErrInjected), lease.ErrLost, lease.ErrNotOwner)
			w.wantHeld(h)
			w.faults.Next(leasetest.OpRenew, leasetest.Fault{Action: leasetest.Hang})
			renewed := make(chan error, 1)
			at := w.now()
			go func() { renewed <- h.Renew(w.ctx) }()
			w.until(at + lease.CallBound(T))
			synctest.Wait()
			wantMatch(w, <-renewed, is(context.DeadlineExceeded), lease.ErrLost)
			w.wantHeld(h)
			w.faults.Partition()
			w.wantLostAt(h, trusted(T), lease.Expired)
		})
	}
}

// The caller of a renewal in flight is told when the lease ends meanwhile.
func TestRenew_LeaseEndsMeanwhile(t *testing.T) {
	inBubble(t, func(w *world) {
		h := w.lock("x", mutex.WithMaxHold(time.Second))
		w.faults.Next(leasetest.OpRenew, leasetest.Fault{Action: leasetest.HangForever})
		errs := make(chan error, 2)
		for range 2 { // one in flight, one behind it
			go func() { errs <- h.Renew(w.ctx) }()
			synctest.Wait()
		}
		w.until(time.Second)
		synctest.Wait()
		wantMatch(w, <-errs, is(lease.ErrLost))
		wantMatch(w, <-errs, is(lease.ErrLost))
	})
}

func TestRenewFor_Longer(t *testing.T) {
	const longer = 10 * T
	inBubble(t, func(w *world) {
		h := w.lock("x")
		w.until(time.Second)
		if err := h.RenewFor(w.ctx, longer); err != nil {
			w.Fatal(err)
		}
		if got := h.Remaining(); got != trusted(longer) {
			w.Errorf("trusted for %v, want %v", got, trusted(longer))
		}
		if holder, _ := w.holder("x"); holder.Remaining != longer || !h.ExpiresAt().Equal(w.clk.Now().Add(longer)) {
			w.Errorf("the record runs for %v, expires at %v", holder.Remaining, h.ExpiresAt())
		}
		// The interval grows with it, and later renewals ask for the same.
		w.until(time.Second + 10*R - 1)
		w.wantSent(leasetest.OpRenew, "x", 1)
		w.advance(1)
		calls := w.sent(leasetest.OpRenew, "x")
		if len(calls) != 2 || calls[1].TTL != longer {
			w.Errorf("renewals %+v", calls)
		}
		w.advance(10 * longer)
		w.wantHeld(h)
	})
}

func TestRenewFor_ShorterEndsNothingEarlier(t *testing.T) {
	const shorter = T / 10
	inBubble(t, func(w *world) {
		h := w.lock("x")
		before := h.TrustedUntil()
		if err := h.RenewFor(w.ctx, shorter); err != nil {
			w.Fatal(err)
		}
		if h.TrustedUntil() != before {
			w.Errorf("trusted until %v, want %v as before", h.TrustedUntil(), before)
		}
		w.until(R / 10)
		w.wantSent(leasetest.OpRenew, "x", 2)
		w.advance(10 * T)
		w.wantHeld(h)
		renewals := w.sent(leasetest.OpRenew, "x")
		if last := renewals[len(renewals)-1]; last.TTL != shorter {
			w.Errorf("renewed for %v, want %v", last.TTL, shorter)
		}
		checkGaps(w, w.sentAt(leasetest.OpRenew, "x"), R/10, R/10)
		if h.Remaining() > trusted(shorter) {
			w.Errorf("trusted for %v", h.Remaining())
		}
	})
}

// An unknown outcome changes no length: the old one is asked for again.
func TestRenewFor_Unknown(t *testing.T) {
	inBubble(t, func(w *world) {
		h := w.lock("x")
		w.faults.Next(leasetest.OpRenew, leasetest.Fault{Action: leasetest.DropReply})
		wantMatch(w, h.RenewFor(w.ctx, time.Hour), is(leasetest.ErrInjected))
		if h.TrustedUntil().Sub(w.start) != trusted(T) {
			w.Errorf("trusted until %v", h.TrustedUntil().Sub(w.start))
		}
		w.advance(10 * T)
		w.wantHeld(h)
		calls := w.sent(leasetest.OpRenew, "x")
		if last := calls[len(calls)-1]; last.TTL != T {
			w.Errorf("renewed for %v, want %v", last.TTL, T)
		}
	})
}

// Callers who ask for different lengths at the same time all get an answer.
func TestRenewFor_DifferentLengthsAtOnce(t *testing.T) {
	inBubble(t, func(w *world) {
		h := w.lock("x")
		w.faults.Plan(failing(leasetest.OpRenew, leasetest.Fault{After: 100 * time.Millisecond}))
		errs := make(chan error, 6)
		for i := range cap(errs) {
			go func() {
				if i%3 == 0 {
					errs <- h.Renew(w.ctx)
					return
				}
				errs <- h.RenewFor(w.ctx, time.Duration(i%3)*time.Minute)
			}()
		}
		w.advance(time.Second)
		synctest.Wait()
		for range cap(errs) {
			if err := <-errs; err != nil {
				w.Error(err)
			}
		}
		w.faults.Plan(nil)
		w.wantHeld(h)
	})
}

// However short the length, renewals stay at least a millisecond apart, which is the least that WithRenewEvery accepts, and do
// not stop.
func TestRenewFor_IntervalHasAFloor(t *testing.T) {
	for name, ttl := range map[string]time.Duration{"Day": 24 * time.Hour, "Century": lease.MaxTTL} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.noStorm()
				h := w.lock("x", mutex.WithTTL(ttl), mutex.WithRenewEvery(time.Millisecond))
				if err := h.RenewFor(w.ctx, time.Second); err != nil {
					w.Fatal(err)
				}
				before := len(w.sent(leasetest.OpRenew, "x"))
				w.advance(100 * time.Millisecond)
				if n := len(w.sent(leasetest.OpRenew, "x")) - before; n < 1 || n > 100 {
					w.Errorf("%d renewals in 100 ms", n)
				}
			})
		})
	}
}

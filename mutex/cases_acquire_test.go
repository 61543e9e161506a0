package mutex_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/clockctx"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/lease/leasetest"
	"github.com/leasehold-go/leasehold/mutex"
)

func TestC01_ResendMakesNoWinnerLose(t *testing.T) {
	inBubble(t, func(w *world) {
		w.faults.Next(leasetest.OpAcquire, leasetest.Fault{Action: leasetest.Resend})
		w.wantHolder("x", w.lock("x"))
	})
}

func TestC01_LostReplyIsNotContention(t *testing.T) {
	inBubble(t, func(w *world) {
		w.faults.Next(leasetest.OpAcquire, leasetest.Fault{Action: leasetest.DropReply})
		h, err := w.locks.TryLock(w.ctx, "x")
		if h != nil {
			w.Fatalf("got handle %v", h)
		}
		wantMatch(w, err, is(leasetest.ErrInjected), lease.ErrHeld)
		synctest.Wait()
		w.wantFree("x")
	})
}

func TestC01_LockRepeatsALostReply(t *testing.T) {
	inBubble(t, func(w *world) {
		w.faults.Next(leasetest.OpWait, leasetest.Fault{Action: leasetest.DropReply})
		got := w.waiting(w.locks, w.ctx, "x")
		w.advance(P)
		w.wantHolder("x", w.granted(got))
	})
}

func TestC02_AcquireExecutedTwiceIsOneHold(t *testing.T) {
	inBubble(t, func(w *world) {
		w.faults.Next(leasetest.OpAcquire, leasetest.Fault{Action: leasetest.Duplicate})
		h := w.lock("x")
		w.release(h)
		w.wantFree("x")
		sent := len(w.faults.Calls())
		w.advance(3 * R)
		if n := len(w.faults.Calls()) - sent; n != 0 {
			w.Errorf("%d calls after the release", n)
		}
	})
}

func TestC03_AcquireThatTimedOutIsGivenBack(t *testing.T) {
	type key struct{}
	for _, variant := range []string{"Ours", "TakenMeanwhile"} {
		t.Run(variant, func(t *testing.T) {
			inBubble(t, func(w *world) {
				ctx, cancel := clockctx.WithTimeout(context.WithValue(w.ctx, key{}, 1), w.clk, time.Second)
				defer cancel()
				w.faults.Next(leasetest.OpAcquire, leasetest.Fault{After: 3 * time.Second})
				w.faults.Next(leasetest.OpRelease, leasetest.Fault{Before: time.Second})
				got := make(chan error, 1)
				go func() {
					_, err := w.locks.TryLock(ctx, "x")
					got <- err
				}()
				w.until(time.Second)
				wantMatch(w, <-got, is(context.DeadlineExceeded), lease.ErrHeld)
				var other *lease.Handle
				if variant == "TakenMeanwhile" {
					w.deleteRecord("x")
					other = w.lockOn(w.locker(w.store), "x")
				}
				w.advance(lease.CallBound(T))

				deletes := w.sent(leasetest.OpRelease, "x")
				owner := w.sent(leasetest.OpAcquire, "x")[0].Claim.Owner
				if len(deletes) != 1 || deletes[0].Claim.Owner != owner || deletes[0].Err != nil {
					w.Errorf("deletes %+v, want one by %q that arrived although the caller's ctx was over", deletes, owner)
				}
				if other == nil {
					w.wantFree("x")
					return
				}
				w.wantHolder("x", other)
				if !other.Valid() {
					w.Error(other.Err())
				}
				w.release(other)
			})
		})
	}
}

func TestC04_AbortedWaitReturnsAnError(t *testing.T) {
	inBubble(t, func(w *world) {
		a := w.lock("x")
		ctx, cancel := context.WithCancel(w.ctx)
		b := w.waiting(w.locks, ctx, "x")
		c := w.waiting(w.locks, w.ctx, "x", mutex.WithWait(5*time.Second))
		w.until(5*time.Second - 1)
		w.stillWaiting(b)
		w.stillWaiting(c)
		w.advance(1)
		cancel()
		wantMatch(w, w.result(b).err, is(context.Canceled, lease.ErrHeld), context.DeadlineExceeded)
		wantMatch(w, w.result(c).err, is(context.DeadlineExceeded, lease.ErrHeld), context.Canceled)
		w.release(a)
		w.wantFree("x")
	})
}

func TestC04_CancelAndReleaseAtOneInstant(t *testing.T) {
	for name, run := range map[string]func(*testing.T, func(*world), ...mutex.Option){"Queue": inBubble, "Poll": inPollingBubble} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				won := 0
				const rounds = 500
				for range rounds {
					a := w.lock("x")
					ctx, cancel := context.WithCancel(w.ctx)
					got := w.waiting(w.locks, ctx, "x")
					go cancel()
					go w.release(a)
					w.advance(P) // waiting checks that there is a handle or an error
					r := w.result(got)
					if r.err == nil {
						won++
						w.release(r.h)
					} else {
						wantMatch(w, r.err, is(context.Canceled), context.DeadlineExceeded)
					}
					synctest.Wait()
					w.wantFree("x")
				}
				w.Logf("the release came first in %d of %d rounds", won, rounds)
			})
		})
	}
}

func TestC06_TTLs(t *testing.T) {
	inBubble(t, func(w *world) {
		const largest = time.Duration(1<<63 - 1)
		for _, ttl := range []time.Duration{0, -1, -time.Second, 1, 999 * time.Microsecond, lease.MinTTL - 1, lease.MaxTTL + 1, largest} {
			_, err := mutex.New(w.store, mutex.WithTTL(ttl))
			wantMatch(w, err, is(lease.ErrInvalid))
			h, err := w.locks.TryLock(w.ctx, "x", mutex.WithTTL(ttl))
			wantMatch(w, err, is(lease.ErrInvalid))
			if h != nil {
				w.Errorf("%v: got a handle", ttl)
			}
			h = w.lock("renewed")
			wantMatch(w, h.RenewFor(w.ctx, ttl), is(lease.ErrInvalid))
			w.release(h)
		}
		w.wantSent(leasetest.OpAcquire, "x", 0)
		w.wantSent(leasetest.OpRenew, "", 0)

		for _, ttl := range []time.Duration{lease.MinTTL, 500 * time.Millisecond, 800 * time.Millisecond, 1500 * time.Millisecond,
			1999500 * time.Microsecond, lease.MaxTTL} {
			h := w.lock("x", mutex.WithTTL(ttl))
			if left := h.TrustedUntil().Sub(w.clk.Now()); left != trusted(ttl) || h.Remaining() != left || left <= 0 {
				w.Errorf("%v: trusted for %v, want %v", ttl, left, trusted(ttl))
			}
			if holder, ok := w.holder("x"); !ok || holder.Remaining != ttl {
				w.Errorf("%v: the record runs for %v", ttl, holder.Remaining)
			}
			if got := h.ExpiresAt().Sub(w.clk.Now()); got != ttl {
				w.Errorf("%v: ExpiresAt is %v from now", ttl, got)
			}
			w.release(h)
		}
	})
}

// A backend may cut the TTL to whole milliseconds: what counts is what was granted.
func TestC06_TrustCountsWhatWasGranted(t *testing.T) {
	inBubble(t, func(w *world) {
		l := w.locker(cutting{w.store})
		h := w.lockOn(l, "x", mutex.WithTTL(1999500*time.Microsecond))
		if got, want := h.Remaining(), trusted(1999*time.Millisecond); got != want {
			w.Errorf("trusted for %v, want %v", got, want)
		}
		w.advance(20 * time.Second)
		w.wantHeld(h)
		if err := l.Close(w.ctx); err != nil {
			w.Error(err)
		}
	})
}

// cutting is a backend that grants whole milliseconds.
type cutting struct{ lease.Backend }

func (c cutting) Acquire(ctx context.Context, req lease.Request) (lease.Grant, error) {
	req.TTL = req.TTL.Truncate(time.Millisecond)
	return c.Backend.Acquire(ctx, req)
}

func (c cutting) Renew(ctx context.Context, claim lease.Claim, ttl time.Duration) (lease.Grant, error) {
	return c.Backend.Renew(ctx, claim, ttl.Truncate(time.Millisecond))
}

func TestC07_LeaseCountsFromTheWinningAttempt(t *testing.T) {
	const ttl = time.Second
	inBubble(t, func(w *world) {
		a := w.lock("x")
		b := w.waiting(w.locks, w.ctx, "x")
		w.until(1200 * time.Millisecond)
		w.release(a)
		h := w.granted(b)
		if got := h.TrustedUntil().Sub(w.start); got != 1200*time.Millisecond+trusted(ttl) {
			w.Errorf("trusted until %v", got)
		}
		if holder, _ := w.holder("x"); holder.Remaining != ttl {
			w.Errorf("the record runs for %v, want %v", holder.Remaining, ttl)
		}
		renewals := len(w.sent(leasetest.OpRenew, "x")) // with the confirmation of the grant
		w.until(1200*time.Millisecond + ttl/3 - 1)
		w.wantSent(leasetest.OpRenew, "x", renewals)
		w.advance(1)
		w.wantSent(leasetest.OpRenew, "x", renewals+1)
	}, mutex.WithTTL(ttl))
}

func TestC07_LateGrantIsNotUsed(t *testing.T) {
	inBubble(t, func(w *world) {
		w.faults.Next(leasetest.OpWait, leasetest.Fault{After: T})
		got := w.waiting(w.locks, w.ctx, "x")
		w.until(T)
		w.stillWaiting(got)
		w.advance(P)
		h := w.granted(got)
		w.wantHeld(h)
		if h.TrustedUntil().Sub(w.start) > w.now()+trusted(T) {
			w.Error("trusted beyond the lease")
		}
	})
}

// The helper process of TestC09 prints the owner ids of as many locks as it is told.
func TestC09_Helper(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("LEASEHOLD_C09"))
	if err != nil {
		t.Skip("runs in processes of TestC09")
	}
	inBubble(t, func(w *world) {
		l := w.locker(refusing{t})
		for range n {
			_, err := l.TryLock(w.ctx, "x")
			wantMatch(w, err, is(lease.ErrHeld))
		}
	})
}

// refusing prints every owner and refuses it.
type refusing struct{ t *testing.T }

func (r refusing) Acquire(_ context.Context, req lease.Request) (lease.Grant, error) {
	fmt.Println("owner", req.Owner)
	return lease.Grant{}, &lease.HeldError{Name: req.Name}
}

func (refusing) Renew(context.Context, lease.Claim, time.Duration) (lease.Grant, error) {
	return lease.Grant{}, lease.ErrMissing
}
func (refusing) Release(context.Context, lease.Claim) error { return nil }
func (refusing) Info() lease.Info                           { return lease.Info{Name: "refusing"} }

func TestC09_OwnersAreDistinct(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Skip(err)
	}
	const processes = 8
	each := rounds(10_000)
	var outputs [processes]bytes.Buffer
	var cmds [processes]*exec.Cmd
	for i := range cmds {
		cmds[i] = exec.CommandContext(t.Context(), exe, "-test.run=^TestC09_Helper$")
		cmds[i].Env = append(os.Environ(), "LEASEHOLD_C09="+strconv.Itoa(each))
		cmds[i].Stdout = &outputs[i]
		if err := cmds[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	seen := make(map[string]bool)
	for i := range cmds {
		if err := cmds[i].Wait(); err != nil {
			t.Fatalf("%v\n%s", err, outputs[i].String())
		}
		for line := range strings.Lines(outputs[i].String()) {
			if owner, ok := strings.CutPrefix(strings.TrimSpace(line), "owner "); ok {
				if len(owner) != 32 || strings.Trim(owner, "0123456789abcdef") != "" {
					t.Fatalf("owner %q is not 128 bits in hexadecimal", owner)
				}
				seen[owner] = true
			}
		}
	}
	if len(seen) != processes*each {
		t.Errorf("%d distinct owners, want %d", len(seen), processes*each)
	}
}

func TestC09_OneOwnerForAllAttemptsOfACall(t *testing.T) {
	inPollingBubble(t, func(w *world) {
		w.faults.Next(leasetest.OpAcquire, fail(nil), fail(nil), fail(nil))
		got := w.waiting(w.locks, w.ctx, "x")
		w.advance(4 * P)
		w.granted(got)
		for _, c := range w.sent(leasetest.OpAcquire, "x") {
			if c.Claim.Owner != w.sent(leasetest.OpAcquire, "x")[0].Claim.Owner {
				w.Errorf("another owner: %+v", c)
			}
		}
	})
}

func TestC10_PermanentRefusalEndsTheWait(t *testing.T) {
	denied := errors.New("NOPERM")
	for name, run := range map[string]func(*testing.T, func(*world), ...mutex.Option){"Queue": inBubble, "Poll": inPollingBubble} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				w.faults.Next(leasetest.OpAcquire, fail(lease.Permanent(denied)))
				w.faults.Next(leasetest.OpWait, fail(lease.Permanent(denied)))
				r := w.result(w.waiting(w.locks, w.ctx, "x"))
				wantMatch(w, r.err, is(lease.ErrPermanent, denied), lease.ErrHeld, context.DeadlineExceeded)
				if n := len(w.faults.Calls()); n != 1 {
					w.Errorf("%d calls, want 1", n)
				}
			})
		})
	}
}

func TestC11_BackendTroubleIsNotContention(t *testing.T) {
	oom := errors.New("OOM command not allowed when used memory > 'maxmemory'")
	for name, run := range map[string]func(*testing.T, func(*world), ...mutex.Option){"Queue": inBubble, "Poll": inPollingBubble} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				w.faults.Plan(func(leasetest.Op, string) leasetest.Fault {
					if w.now() < 3*time.Second {
						return fail(oom)
					}
					return leasetest.Fault{}
				})
				_, err := w.locks.TryLock(w.ctx, "x")
				wantMatch(w, err, is(oom), lease.ErrHeld)
				got := w.waiting(w.locks, w.ctx, "x", mutex.WithWait(10*time.Second), mutex.WithRand(func() float64 { return 1 }))
				w.until(3*time.Second + P)
				w.wantHeld(w.granted(got))
			})
		})
	}
}

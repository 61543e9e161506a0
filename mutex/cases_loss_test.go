package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/backends/memory"
	"github.com/leasehold-go/leasehold/internal/clockctx"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/lease/leasetest"
	"github.com/leasehold-go/leasehold/mutex"
)

func TestC37_HungRenewalDelaysNoLoss(t *testing.T) {
	for _, action := range []leasetest.Action{leasetest.Hang, leasetest.HangForever} {
		t.Run(action.String(), func(t *testing.T) {
			inBubble(t, func(w *world) {
				h := w.lock("x")
				w.until(R)
				w.wantHeld(h)
				w.faults.Plan(failing(leasetest.OpRenew, leasetest.Fault{Action: action}))
				w.wantLostAt(h, R+trusted(T), lease.Expired)
				if holder, ok := w.holder("x"); !ok || holder.Remaining <= 0 {
					w.Error("the record was gone before the loss was told")
				}
				calls := len(w.faults.Calls())
				w.advance(10 * T)
				if n := len(w.faults.Calls()) - calls; n != 0 {
					w.Errorf("%d calls after the loss", n)
				}
			})
		})
	}
}

// With calls that hang until their bound there are at least three tries, and what the loss says is why they failed.
func TestC37_LossTellsTheLastError(t *testing.T) {
	inBubble(t, func(w *world) {
		h := w.lock("x")
		w.faults.Partition()
		w.wantLostAt(h, trusted(T), lease.Expired)
		wantMatch(w, h.Err(), is(lease.ErrLost, context.DeadlineExceeded), lease.ErrNotOwner)
		if n := len(w.sent(leasetest.OpRenew, "x")); n < 3 {
			w.Errorf("%d tries, want at least 3", n)
		}
	})
}

// The reply that comes after the end of trust revives nothing, and what it got is given back.
func TestC37_LateReplyIsGivenBack(t *testing.T) {
	inBubble(t, func(w *world) {
		l := w.locker(deaf{w.net})
		h := w.lockOn(l, "x")
		w.until(R)
		w.faults.Plan(failing(leasetest.OpRenew, leasetest.Fault{After: T}))
		w.wantLostAt(h, R+trusted(T), lease.Expired)
		w.wantHolder("x", h) // the renewal took effect
		w.wantSent(leasetest.OpRelease, "x", 0)
		w.until(2*R + T)
		w.wantFree("x")
		w.wantSent(leasetest.OpRelease, "x", 1)
		w.wantLost(h, lease.Expired)
		wantMatch(w, h.Release(w.ctx), is(lease.ErrLost))
		w.wantSent(leasetest.OpRelease, "x", 1)
		w.faults.Plan(nil)
	})
}

// deaf is a backend whose renewals ignore their ctx.
type deaf struct{ lease.Backend }

func (d deaf) Renew(ctx context.Context, claim lease.Claim, ttl time.Duration) (lease.Grant, error) {
	return d.Backend.Renew(context.WithoutCancel(ctx), claim, ttl)
}

func TestC38_RecordDeletedOrTaken(t *testing.T) {
	for _, reason := range []lease.Reason{lease.Missing, lease.Taken} {
		t.Run(reason.String(), func(t *testing.T) {
			inBubble(t, func(w *world) {
				h := w.lock("x")
				w.until(R + 1)
				w.deleteRecord("x")
				var other *lease.Handle
				if reason == lease.Taken {
					other = w.lockOn(w.locker(w.store), "x", mutex.WithoutRenewal())
				}
				w.wantLostAt(h, 2*R, reason)
				wantMatch(w, h.Err(), is(lease.ErrLost, lease.ErrNotOwner))
				calls := len(w.faults.Calls())
				wantMatch(w, h.Release(w.ctx), is(lease.ErrLost))
				w.advance(R)
				if n := len(w.faults.Calls()) - calls; n != 0 {
					w.Errorf("%d calls after the loss", n)
				}
				if other != nil {
					w.wantHolder("x", other)
					w.release(other)
				}
			})
		})
	}
}

func TestC39_WokeUpAfterTheEnd(t *testing.T) {
	for _, taken := range []bool{false, true} {
		t.Run(fmt.Sprint("Taken/", taken), func(t *testing.T) {
			inBubble(t, func(w *world) {
				f := newFrozen()
				h := w.lock("x", f.option())
				w.until(R)
				<-f.in
				w.until(T + 10*T)
				var other *lease.Handle
				if taken {
					other = w.lockOn(w.locker(w.store), "x", mutex.WithoutRenewal())
				}
				if h.Valid() {
					w.Error("valid long after the end")
				}
				calls := len(w.faults.Calls())
				close(f.out)
				w.wantLost(h, lease.Expired)
				w.advance(T / 2)
				if n := len(w.faults.Calls()) - calls; n != 0 {
					w.Errorf("%d calls after the end", n)
				}
				if other != nil {
					w.wantHolder("x", other)
					w.release(other)
				}
			})
		})
	}
}

// Everything that can end a handle, at the same moment.
func TestC41_OneEndInEveryRace(t *testing.T) {
	for name, opts := range map[string][]mutex.Option{"Patient": nil, "Strict": {mutex.WithStrictRenewal()}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				ends := make(map[string]int)
				for range 5000 { // of 10,000: the race detector is what this is for
					var mu sync.Mutex
					told := make(map[string]int) // by observers
					note := func(e lease.Event) { mu.Lock(); told[e.Reason.String()]++; mu.Unlock() }
					net, faults := leasetest.Faulty(w.store, w.clk) // its record of calls is to stay short
					l := w.locker(net, append(opts, mutex.WithMaxHold(R), mutex.WithObserver(lease.Observer{Lost: note, Released: note}))...)
					h := w.lockOn(l, "x")
					w.until(w.now() + R - 1)
					if rand.IntN(2) == 0 {
						w.deleteRecordOf(faults, "x")
					}
					var all sync.WaitGroup
					var releases [3]error
					for i := range releases {
						all.Go(func() { releases[i] = h.Release(w.ctx) })
					}
					for range 2 {
						all.Go(func() {
							if err := h.Renew(w.ctx); err != nil && h.Err() == nil {
								w.Errorf("Renew: %v, and the handle is held", err)
							}
						})
					}
					all.Go(func() { _ = l.Close(w.ctx) })
					w.clk.Add(1)
					all.Wait()
					synctest.Wait()
					checkOneEnd(w, h, releases[:])
					if len(told) != 1 {
						w.Fatalf("observers were told of %v, want one end", told)
					}
					for reason, count := range told {
						if count != 1 {
							w.Fatalf("observers were told of %v, want one end", told)
						}
						ends[fmt.Sprint(h.State(), " ", reason)]++
					}
					w.wantFree("x")
				}
				w.Logf("ends: %v", ends)
			})
		})
	}
}

func checkOneEnd(t testing.TB, h *lease.Handle, releases []error) {
	t.Helper()
	if !h.State().Terminal() || !isClosed(h.Done()) || isClosed(h.Lost()) != (h.State() == lease.Lost) || context.Cause(h.Context()) != h.Err() {
		t.Fatalf("signals disagree: %s", describe(h))
	}
	for _, err := range releases {
		if (err == nil) != (releases[0] == nil) {
			t.Fatalf("releases disagree: %v and %v", err, releases[0])
		}
		if h.State() == lease.Lost && err != h.Err() || err != nil && !errors.Is(err, lease.ErrLost) {
			t.Fatalf("Release: %v on a handle that ended with %v", err, h.Err())
		}
	}
}

func TestC42_SignalsAgree(t *testing.T) {
	inBubble(t, func(w *world) {
		for i := range rounds(10_000) / 100 {
			var all sync.WaitGroup
			check := func(h *lease.Handle) {
				if !isClosed(h.Lost()) || !isClosed(h.Done()) || h.State() != lease.Lost || h.Context().Err() == nil ||
					!errors.Is(context.Cause(h.Context()), lease.ErrLost) || h.Valid() {
					w.Errorf("signals disagree: %s", describe(h))
				}
				if err := h.Renew(w.ctx); !errors.Is(err, lease.ErrLost) {
					w.Errorf("Renew: %v, want ErrLost", err)
				}
			}
			handles := make([]*lease.Handle, 100)
			for j := range handles {
				h := w.lock(fmt.Sprint(i, "-", j))
				handles[j] = h
				lost, done, ctx := h.Lost(), h.Done(), h.Context()
				all.Go(func() { <-lost; check(h) })
				all.Go(func() { <-done; check(h) })
				all.Go(func() {
					<-ctx.Done()
					if errors.Is(context.Cause(ctx), lease.ErrLost) && !isClosed(lost) {
						w.Error("the context ended with ErrLost before Lost was closed")
					}
					check(h)
				})
			}
			w.faults.Plan(failing(leasetest.OpRenew, fail(lease.ErrMissing)))
			w.advance(R)
			all.Wait()
			w.faults.Plan(nil)
			w.advance(T)
		}
	})
}

func TestC43_LossBlocksNoNewHold(t *testing.T) {
	inBubble(t, func(w *world) {
		a := w.lock("x")
		w.faults.Partition()
		w.until(trusted(T))
		w.wantLost(a, lease.Expired)
		w.faults.Heal()
		_, err := w.locks.TryLock(w.ctx, "x")
		wantMatch(w, err, is(lease.ErrHeld))
		w.until(T)
		b := w.lock("x")
		if b.Token() <= a.Token() {
			w.Errorf("token %d after %d", b.Token(), a.Token())
		}
		wantMatch(w, a.Release(w.ctx), is(lease.ErrLost))
		w.wantHolder("x", b)
		w.advance(T)
		w.wantHeld(b)
	})
}

// Three workers lease two ids over networks that break, and use an id only while they may.
func TestC44_WorkerIDsNeverComeOutTwice(t *testing.T) {
	const (
		ttl     = 5 * time.Second
		workers = 3
		slots   = 2
		length  = 2 * time.Minute
	)
	type issue struct {
		token  lease.Token
		worker int
		at     time.Duration
	}
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, func(b *memory.Backend) lease.Backend { return b }, nil)
			defer w.end()
			rnd := rand.New(rand.NewPCG(seed, 44))
			ctx, stop := context.WithCancel(w.ctx)
			var mu sync.Mutex
			issued := make(map[int][]issue) // by slot
			var all sync.WaitGroup
			nets := make([]*leasetest.Faults, workers)
			for worker := range workers {
				net, faults := leasetest.Faulty(w.store, w.clk)
				nets[worker] = faults
				l := w.locker(net, mutex.WithTTL(ttl), mutex.WithRand(seeded(seed*10+uint64(worker))))
				all.Go(func() {
					for slot := 0; ctx.Err() == nil; slot = (slot + 1) % slots {
						h, err := l.TryLock(ctx, fmt.Sprint("slot", slot))
						if err != nil {
							nap(ctx, w, 200*time.Millisecond)
							continue
						}
						for h.Valid() && !isClosed(h.Lost()) && ctx.Err() == nil {
							mu.Lock()
							issued[slot] = append(issued[slot], issue{h.Token(), worker, w.now()})
							mu.Unlock()
							nap(ctx, w, 100*time.Millisecond)
						}
						_ = h.Close()
					}
					_ = l.Close(w.ctx)
				})
			}
			cut := func(d time.Duration, which ...int) {
				for _, i := range which {
					nets[i].Partition()
				}
				w.advance(d)
				for _, i := range which {
					nets[i].Heal()
				}
			}
			w.until(ttl)
			cut(4*ttl, 0, 1, 2)
			recovered := w.now()
			w.advance(ttl + time.Second)
			for slot := range slots {
				if list := issued[slot]; len(list) == 0 || list[len(list)-1].at < recovered {
					w.Errorf("seed %d: slot %d is not leased again %v after the recovery", seed, slot, ttl+time.Second)
				}
			}
			for w.now() < length {
				cut(time.Duration(rnd.Int64N(int64(2*ttl))), rnd.IntN(workers))
				w.advance(time.Duration(rnd.Int64N(int64(ttl))))
			}
			stop()
			for _, f := range nets {
				f.Heal()
			}
			w.advance(ttl)
			all.Wait()
			for _, f := range nets {
				f.Close()
			}
			grants := 0
			for slot, list := range issued {
				owners := make(map[lease.Token]int)
				for i, is := range list {
					if i > 0 && is.token < list[i-1].token {
						w.Errorf("seed %d: slot %d: worker %d used it at %v, after %+v", seed, slot, is.worker, is.at, list[i-1])
					}
					if other, ok := owners[is.token]; ok && other != is.worker {
						w.Errorf("seed %d: token %d was granted to two workers", seed, is.token)
					}
					owners[is.token] = is.worker
				}
				grants += len(owners)
			}
			if grants < 2*slots {
				w.Errorf("seed %d: %d leases only: the cuts prove nothing", seed, grants)
			}
		})
	}
}

// nap waits on the world's clock.
func nap(ctx context.Context, w *world, d time.Duration) {
	ctx, cancel := clockctx.WithTimeout(ctx, w.clk, d)
	defer cancel()
	<-ctx.Done()
}

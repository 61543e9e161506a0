package mutex_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/lease/leasetest"
	"github.com/leasehold-go/leasehold/mutex"
)

func TestC52_TokensOrderTheHolders(t *testing.T) {
	inBubble(t, func(w *world) {
		const ttl = time.Second
		acquires := rounds(10_000)
		rnd := rand.New(rand.NewPCG(52, 0))
		clients := []*mutex.Locker{w.locker(w.store), w.locker(w.store), w.locker(w.store)}
		last := make(map[string]lease.Token)
		type hold struct {
			h     *lease.Handle
			token lease.Token
		}
		held := make(map[string]hold)
		for granted := 0; granted < acquires; {
			name := fmt.Sprint("name", rnd.IntN(5))
			opts := []mutex.Option{mutex.WithTTL(ttl)}
			if rnd.IntN(2) == 0 {
				opts = append(opts, mutex.WithoutRenewal())
			}
			h, err := clients[rnd.IntN(3)].TryLock(w.ctx, name, opts...)
			if err != nil {
				wantMatch(w, err, is(lease.ErrHeld))
				if old := held[name]; old.h.Token() != old.token {
					w.Fatalf("a failed try changed token %d to %d", old.token, old.h.Token())
				}
			} else {
				granted++
				if h.Token() <= last[name] || h.Token() < 1 || h.Token() > lease.MaxToken {
					w.Fatalf("%q: token %d after %d", name, h.Token(), last[name])
				}
				last[name] = h.Token()
				held[name] = hold{h, h.Token()}
			}
			old := held[name]
			switch rnd.IntN(8) {
			case 0, 1, 2, 3:
				_ = old.h.Release(w.ctx)
			case 4, 5:
				_ = old.h.Renew(w.ctx)
			case 6:
				w.advance(time.Duration(rnd.Int64N(int64(2 * ttl))))
			}
			if old.h.Token() != old.token {
				w.Fatalf("token %d became %d", old.token, old.h.Token())
			}
		}
		for _, l := range clients {
			if err := l.Close(w.ctx); err != nil {
				w.Error(err)
			}
		}
	})
}

// Tokens rise although the store has forgotten the record, and a clock that stands still does not stop them.
func TestC52_TokensRiseWithoutTime(t *testing.T) {
	inBubble(t, func(w *world) {
		var last lease.Token
		for range 100 {
			h := w.lock("x")
			if h.Token() <= last {
				w.Fatalf("token %d after %d", h.Token(), last)
			}
			last = h.Token()
			w.deleteRecord("x")
		}
	})
}

// register is what a storage does that is guarded by tokens.
type register struct {
	mu       sync.Mutex
	fenced   bool
	highest  lease.Token
	value    int
	accepted []lease.Token
	rejected int
}

// see refuses a token below the highest it has seen. An equal one is the same holder again.
func (r *register) see(token lease.Token) bool {
	if r.fenced && token < r.highest {
		r.rejected++
		return false
	}
	r.highest = max(r.highest, token)
	return true
}

func (r *register) read(token lease.Token) (int, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value, r.see(token)
}

func (r *register) write(token lease.Token, value int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.see(token) {
		return false
	}
	r.value = value
	r.accepted = append(r.accepted, token)
	return true
}

func TestC54_StorageChecksTheToken(t *testing.T) {
	inBubble(t, func(w *world) {
		r := &register{fenced: true}
		a := w.lock("x", mutex.WithoutRenewal())
		if !r.write(a.Token(), 1) {
			w.Error("A's write was rejected")
		}
		w.until(T) // A pauses
		b := w.lock("x")
		if b.Token() <= a.Token() {
			w.Errorf("token %d after %d", b.Token(), a.Token())
		}
		if !r.write(b.Token(), 2) || !r.write(b.Token(), 3) {
			w.Error("a write of B was rejected")
		}
		if r.write(a.Token(), 4) {
			w.Error("A's late write was accepted")
		}
		if r.value != 3 || r.rejected != 1 {
			w.Errorf("value %d, %d rejections, want 3 and 1", r.value, r.rejected)
		}
	})
}

// Five workers read and write one register, each pausing before every write for up to three leases, like a process that is stopped
// between its check and its write. The fence must keep the register in order, and without it the same pauses must do harm, or the
// test would prove nothing.
func TestC55_PausedHolders(t *testing.T) {
	const ttl = 10 * time.Second
	writes := rounds(10_000)
	run := func(t *testing.T, fenced bool) *register {
		r := &register{fenced: fenced}
		inBubble(t, func(w *world) {
			ctx, stop := context.WithCancel(w.ctx)
			var all sync.WaitGroup
			tries := make(chan struct{}, writes)
			for range writes {
				tries <- struct{}{}
			}
			close(tries)
			for worker := range 5 {
				rnd := rand.New(rand.NewPCG(uint64(worker), 55))
				all.Go(func() {
					for range tries {
						h, err := w.locks.Lock(ctx, "x", mutex.WithTTL(ttl), mutex.WithoutRenewal())
						if err != nil {
							return
						}
						if h.Valid() {
							v, ok := r.read(h.Token())
							nap(ctx, w, time.Duration(rnd.Int64N(int64(3*ttl))))
							if ok {
								r.write(h.Token(), v+1)
							}
						}
						_ = h.Close()
					}
				})
			}
			for len(tries) > 0 {
				w.advance(100 * ttl)
			}
			w.advance(100 * ttl)
			stop()
			all.Wait()
		})
		return r
	}
	t.Run("Fenced", func(t *testing.T) {
		r := run(t, true)
		for i := 1; i < len(r.accepted); i++ {
			if r.accepted[i] < r.accepted[i-1] {
				t.Fatalf("token %d was accepted after %d", r.accepted[i], r.accepted[i-1])
			}
		}
		if r.value != len(r.accepted) || r.rejected == 0 {
			t.Errorf("%d writes were accepted and %d calls rejected, and the value is %d: updates were lost, or nobody was late", len(r.accepted), r.rejected, r.value)
		}
	})
	t.Run("Unfenced", func(t *testing.T) {
		r := run(t, false)
		if lost := len(r.accepted) - r.value; lost == 0 {
			t.Error("no update was lost: the pauses prove nothing")
		} else {
			t.Logf("%d of %d updates were lost without the fence", lost, len(r.accepted))
		}
	})
}

// The token belongs to the grant, whatever renewals do.
func TestC52_RenewalsKeepTheToken(t *testing.T) {
	inBubble(t, func(w *world) {
		h := w.lock("x")
		token := h.Token()
		w.faults.Next(leasetest.OpRenew, leasetest.Fault{Action: leasetest.DropReply}, leasetest.Fault{Action: leasetest.Resend})
		w.advance(10 * T)
		synctest.Wait()
		if h.Token() != token {
			w.Errorf("token %d became %d", token, h.Token())
		}
		w.wantHolder("x", h)
	})
}

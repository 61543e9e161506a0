package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/mutex"
)

func TestC23_LongHoldIsKept(t *testing.T) {
	t.Parallel()
	const ttl, hold = 600 * time.Millisecond, 20 * 600 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var renewals atomic.Int64
	a := shared(t, mutex.WithTTL(ttl), mutex.WithObserver(lease.Observer{Renewed: func(lease.Event) { renewals.Add(1) }}))
	h := a.lock("n")
	var contenders sync.WaitGroup
	var tries atomic.Int64
	for range 5 {
		b := a.beside(mutex.WithTTL(ttl))
		contenders.Go(func() {
			for ctx.Err() == nil {
				other, err := b.TryLock(ctx, "n")
				if err == nil {
					t.Error("a contender won")
					_ = other.Close()
				}
				if errors.Is(err, lease.ErrHeld) {
					tries.Add(1)
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	select {
	case <-h.Done():
		t.Errorf("the handle ended: %v", h.Err())
	case <-time.After(hold):
	}
	cancel()
	contenders.Wait()
	if n := renewals.Load(); n < int64(hold/(ttl/3)) {
		t.Errorf("%d renewals in %v", n, hold)
	}
	if tries.Load() == 0 {
		t.Error("nobody tried")
	}
	a.unlock(h)
}

func TestC24_RenewalChecksTheOwner(t *testing.T) {
	ctx := t.Context()
	for name, f := range map[string]func(t *testing.T, h *lease.Handle){
		"AskedFor": func(t *testing.T, h *lease.Handle) { wantErr(t, h.Renew(ctx), lease.ErrLost) },
		"ByItself": func(t *testing.T, h *lease.Handle) {},
	} {
		t.Run(name, func(t *testing.T) {
			// The record ends early, so that the holder still trusts in it.
			a := shared(t, mutex.WithTTL(30*time.Second), mutex.WithRenewEvery(300*time.Millisecond))
			b := a.beside()
			h := a.lock("n")
			a.client.PExpire(ctx, a.backend.RecordKey("n"), time.Millisecond)
			eventually(t, func() bool { return a.record(b.client, "n") == "" })
			next := b.lock("n", mutex.WithoutRenewal())
			_, before := expiry(t, b.client, a.backend.RecordKey("n"))
			text := a.record(b.client, "n")
			f(t, h)
			wantLost(t, h, 300*time.Millisecond, lease.Taken)
			if got := a.record(b.client, "n"); got != text {
				t.Errorf("the other's record is %q, was %q", got, text)
			}
			if after, _ := expiry(t, b.client, a.backend.RecordKey("n")); after.After(before) {
				t.Errorf("the other's record runs %v longer", after.Sub(before))
			}
			wantErr(t, h.Renew(ctx), lease.ErrLost)
			b.unlock(next)
		})
	}

	// The holder's network is down until its lease is over and another has it.
	t.Run("AfterAPartition", func(t *testing.T) {
		t.Parallel()
		const ttl = 900 * time.Millisecond
		server := redistest.Start(t)
		a, b := far(t, server, "c24:", mutex.WithTTL(ttl)), near(t, server, "c24:")
		h := a.lock("n")
		w := b.queued(ctx, "n")
		notBefore, notAfter := a.vanish(b.client, "n")
		next := wantTakeOver(t, w, notBefore, notAfter)
		wantLost(t, h, 0, lease.Expired)
		a.heal()
		a.sent.Reset()
		wantErr(t, h.Renew(ctx), lease.ErrLost)
		wantErr(t, h.Release(ctx), lease.ErrLost)
		claim := lease.Claim{Name: "n", Owner: "whoever", Token: h.Token()}
		_, err := a.backend.Renew(ctx, claim, time.Hour)
		wantErr(t, err, lease.ErrTaken)
		b.wantRecord(b.client, next, mutex.DefaultTTL)
		wantHeld(t, next)
		b.unlock(next)
	})
}

func TestC25_CameAndWentMeanwhile(t *testing.T) {
	ctx := t.Context()
	for _, somebodyCame := range []bool{true, false} {
		for _, asked := range []bool{true, false} {
			t.Run(fmt.Sprintf("SomebodyCame=%v/Asked=%v", somebodyCame, asked), func(t *testing.T) {
				a := shared(t, mutex.WithTTL(30*time.Second), mutex.WithRenewEvery(300*time.Millisecond))
				b := a.beside()
				h := a.lock("n")
				last := h.Token()
				a.client.Del(ctx, a.backend.RecordKey("n"))
				if somebodyCame {
					other := b.lock("n")
					last = other.Token()
					b.unlock(other)
				}
				if asked {
					wantErr(t, h.Renew(ctx), lease.ErrLost)
				}
				wantLost(t, h, 300*time.Millisecond, lease.Missing)
				wantErr(t, h.Renew(ctx), lease.ErrLost)
				a.wantFree(b.client, "n")
				next := b.lock("n")
				if next.Token() <= last {
					t.Errorf("token %d after %d", next.Token(), last)
				}
				b.unlock(next)
			})
		}
	}
}

func TestC31_RenewResetsAndNeverAdds(t *testing.T) {
	const ttl = 10 * time.Second
	ctx := t.Context()
	a := shared(t, mutex.WithTTL(ttl))
	h := a.lock("n")
	check := func() error {
		last := h.TrustedUntil()
		if err := h.Renew(ctx); err != nil {
			return err
		}
		trust, now := h.TrustedUntil(), time.Now()
		if trust.Before(last) || trust.After(now.Add(ttl)) {
			return fmt.Errorf("trusted for %v from now on, %v more than before", trust.Sub(now), trust.Sub(last))
		}
		if left := a.client.PTTL(ctx, a.backend.RecordKey("n")).Val(); left <= 0 || left > ttl {
			return fmt.Errorf("the record runs for %v", left)
		}
		return nil
	}
	for range 100 {
		if err := check(); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if err := check(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	a.unlock(h)
}

// An application that wants more connections than there are, all the time, starves no renewal: what New says of such clients is
// followed, and the leases have a client of their own, as small as the application's.
func TestC32_ApplicationStarvesNoRenewal(t *testing.T) {
	t.Parallel()
	small := func(o *goredis.Options) { o.PoolSize = 4 }
	server := redistest.Start(t)
	a, least := c32Peer(t, server, small)
	testC32(t, a, server.Client(small), least)
}

const c32TTL = 3 * time.Second

// c32Peer returns a peer and the least trust that was left when a renewal of its was confirmed.
func c32Peer(t *testing.T, server *redistest.Server, opts ...func(*goredis.Options)) (*peer, *atomic.Int64) {
	least := new(atomic.Int64)
	least.Store(int64(c32TTL))
	return peerOf(t, server, "c32:", opts, mutex.WithTTL(c32TTL), mutex.WithObserver(lease.Observer{Renewed: func(e lease.Event) {
		for seen := least.Load(); int64(e.Margin) < seen && !least.CompareAndSwap(seen, int64(e.Margin)); {
			seen = least.Load()
		}
	}})), least
}

func testC32(t *testing.T, a *peer, application *goredis.Client, least *atomic.Int64) {
	const hold = 7 * time.Second
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var held []*lease.Handle
	for i := range 50 {
		held = append(held, a.lock(fmt.Sprint("n", i)))
	}
	var waiters []<-chan lockResult
	for i := range 200 {
		waiters = append(waiters, a.queued(ctx, fmt.Sprint("n", i%50)))
	}
	var calls atomic.Int64
	var callers sync.WaitGroup
	for range 200 {
		callers.Go(func() {
			for ctx.Err() == nil {
				_ = application.Do(ctx, "blpop", "nothing", "0.1").Err()
				calls.Add(1)
			}
		})
	}
	time.Sleep(hold)
	for _, h := range held {
		if h.State() != lease.Held {
			t.Errorf("%s: %v", h.Name(), h.Err())
		}
	}
	t.Logf("%d calls of the application; the least trust left at a renewal was %v of %v", calls.Load(), time.Duration(least.Load()), c32TTL)
	// Due at R, at the latest confirmed at 2R, and half a second for a busy machine.
	if got, want := time.Duration(least.Load()), c32TTL-lease.Margin(c32TTL)-2*c32TTL/3-500*time.Millisecond; got < want {
		t.Errorf("a renewal was confirmed with %v of trust left, want at least %v", got, want)
	}
	cancel()
	callers.Wait()
	for _, w := range waiters {
		if o := await(t, "a waiter", w, 0); o.err == nil {
			_ = o.h.Close()
		}
	}
}

func TestC36_EachLockerKeepsToItsServer(t *testing.T) {
	t.Parallel()
	const ttl = 600 * time.Millisecond
	ctx := t.Context()
	one, two := redistest.Start(t), redistest.Start(t)
	a := near(t, one, "c36:", mutex.WithTTL(ttl), mutex.WithLabel("a"))
	b := near(t, two, "c36:", mutex.WithTTL(ttl), mutex.WithLabel("b"))
	ha, hb := a.lock("n"), b.lock("n")
	textA, textB := a.record(a.client, "n"), b.record(b.client, "n")
	if !strings.HasSuffix(textA, " a") || !strings.HasSuffix(textB, " b") {
		t.Fatalf("records %q and %q", textA, textB)
	}
	time.Sleep(5 * ttl)
	wantHeld(t, ha)
	wantHeld(t, hb)
	if gotA, gotB := a.record(a.client, "n"), b.record(b.client, "n"); gotA != textA || gotB != textB {
		t.Errorf("records %q and %q, were %q and %q", gotA, gotB, textA, textB)
	}
	a.unlock(ha)
	a.wantFree(a.client, "n")
	b.wantRecord(b.client, hb, ttl)
	if err := hb.Renew(ctx); err != nil {
		t.Error(err)
	}
	b.unlock(hb)
}

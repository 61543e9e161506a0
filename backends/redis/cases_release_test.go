package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/mutex"
)

func TestC45_ReleaseTouchesNoOtherLease(t *testing.T) {
	ctx := t.Context()
	for name, second := range map[string]func(a *peer) *peer{
		"TwoProcesses": func(a *peer) *peer { return a.beside() },
		"OneLocker":    func(a *peer) *peer { return a },
	} {
		t.Run(name, func(t *testing.T) {
			a := shared(t)
			b, c := second(a), a.beside()
			key := a.backend.RecordKey("n")
			h := a.lock("n")
			c.client.PExpire(ctx, key, time.Millisecond)
			eventually(t, func() bool { return a.record(c.client, "n") == "" })
			next := b.lock("n")
			text := a.record(c.client, "n")
			_, end := expiry(t, c.client, key)

			wantErr(t, h.Release(ctx), lease.ErrLost)
			wantErr(t, h.Close(), lease.ErrLost)
			if got := a.record(c.client, "n"); got != text {
				t.Errorf("the other's record is %q, was %q", got, text)
			}
			if begin, _ := expiry(t, c.client, key); begin.After(end) {
				t.Errorf("the other's record runs %v longer", begin.Sub(end))
			}
			_, err := c.TryLock(ctx, "n")
			wantErr(t, err, lease.ErrHeld)
			wantHeld(t, next)
			b.unlock(next)
		})
	}
}

func TestC46_ReleaseOnADeadContext(t *testing.T) {
	t.Run("StoreIsWell", func(t *testing.T) {
		a := shared(t)
		ctx, cancel := context.WithCancel(t.Context())
		h, err := a.Lock(ctx, "n")
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		wantErr(t, h.Context().Err(), context.Canceled)
		if err := h.Release(ctx); err != nil {
			t.Fatal(err)
		}
		a.wantFree(a.client, "n")
		if h.State() != lease.Released || !isClosed(h.Done()) || isClosed(h.Lost()) {
			t.Errorf("state %v, done %v, lost %v", h.State(), isClosed(h.Done()), isClosed(h.Lost()))
		}
	})
	t.Run("StoreIsSilent", func(t *testing.T) {
		t.Parallel()
		const ttl, bound = 1500 * time.Millisecond, 500 * time.Millisecond
		server := redistest.Start(t)
		direct := server.Client()
		a := far(t, server, "c46:", mutex.WithTTL(ttl))
		ctx, cancel := context.WithCancel(t.Context())
		h := a.lock("n")
		a.proxy.BlackHole(true)
		cancel()
		begun := time.Now()
		err := h.Release(ctx)
		took := time.Since(begun)
		if err == nil || errors.Is(err, lease.ErrLost) || errors.Is(err, context.Canceled) {
			t.Fatalf("got %v, want an unknown outcome", err)
		}
		if took > bound+2*time.Second { // the client's own limit is 5 s
			t.Errorf("took %v, want %v", took, bound)
		}
		if h.State() != lease.Released || !isClosed(h.Done()) {
			t.Errorf("state %v, done %v", h.State(), isClosed(h.Done()))
		}
		a.sent.Reset()
		time.Sleep(ttl / 2) // no renewal may come
		if n := a.sent.Total(); n != 0 {
			t.Errorf("%d commands after the release", n)
		}
		a.heal()
		if err := h.Release(ctx); err != nil {
			t.Errorf("tried again: %v", err)
		}
		a.wantFree(direct, "n")
	})
}

func TestC50_ReleaseFromAnywhere(t *testing.T) {
	ctx := t.Context()
	server := redistest.Start(t)
	a := near(t, server, "c50:")
	a.warm()
	h := a.lock("n")
	server.ResetStats(ctx)
	a.sent.Reset()
	var wg sync.WaitGroup
	start := make(chan struct{})
	for range 100 {
		wg.Go(func() {
			<-start
			if err := h.Release(ctx); err != nil {
				t.Errorf("Release: %v", err)
			}
		})
	}
	close(start)
	wg.Wait()
	if n := server.CommandStats(ctx)["del"]; n != 1 {
		t.Errorf("%d deletes", n)
	}
	if n := a.sent.Total(); n != 1 {
		t.Errorf("%d commands", n)
	}
	wantErr(t, h.Renew(ctx), lease.ErrReleased)
	wantErr(t, context.Cause(h.Context()), lease.ErrReleased)
	if isClosed(h.Lost()) {
		t.Error("lost by a release")
	}
	a.wantFree(a.client, "n")
}

// One key becomes forbidden to the Locker's user, so that its delete fails.
func TestC51_CloseReleasesTheRest(t *testing.T) {
	t.Parallel()
	const handles, forbidden = 50, 7
	ctx := t.Context()
	server := redistest.Start(t)
	admin := server.Client()
	setUser := func(patterns ...any) {
		args := append([]any{"acl", "setuser", "app", "on", ">pw", "&*", "+@all", "resetkeys"}, patterns...)
		if err := admin.Do(ctx, args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	setUser("~*")
	a := peerOf(t, server, "c51:", []func(*goredis.Options){func(o *goredis.Options) { o.Username, o.Password = "app", "pw" }})
	other := near(t, server, "c51:")
	a.warm()
	name := func(i int) string { return fmt.Sprintf("n%02d", i) }
	var held []*lease.Handle
	allowed := []any{"~c51:{others:*"}
	for i := range handles {
		held = append(held, a.lock(name(i)))
		if i != forbidden {
			allowed = append(allowed, "~c51:{"+name(i)+"}:*")
		}
	}
	var waiters []<-chan lockResult
	for i := range 10 {
		others := fmt.Sprint("others:", i)
		if i%2 == 0 {
			other.lock(others)
		} else {
			others = name(20 + i) // the Locker's own
		}
		waiters = append(waiters, a.queued(ctx, others))
	}
	setUser(allowed...)

	begun := time.Now()
	err := a.Close(ctx)
	took := time.Since(begun)
	if err == nil || strings.Count(err.Error(), name(forbidden)) == 0 || !goredis.IsPermissionError(err) {
		t.Errorf("Close: %v, want the refusal for %s", err, name(forbidden))
	}
	for i, h := range held {
		wantLost(t, h, 0, lease.Closed)
		if i == forbidden {
			other.wantRecord(admin, h, mutex.DefaultTTL)
			continue
		}
		other.wantFree(admin, name(i))
		if err != nil && strings.Contains(err.Error(), name(i)) {
			t.Errorf("Close: %v names %s", err, name(i))
		}
	}
	for _, w := range waiters {
		o := await(t, "a waiter", w, 0)
		wantErr(t, o.err, lease.ErrClosed)
	}
	if limit := 2 * lease.CallBound(mutex.DefaultTTL); took > limit {
		t.Errorf("took %v", took)
	}
	eventually(t, a.backend.Quiet)
	a.sent.Reset()
	_, err = a.Lock(ctx, "later")
	wantErr(t, err, lease.ErrClosed)
	_, err = a.TryLock(ctx, "later")
	wantErr(t, err, lease.ErrClosed)
	if n := a.sent.Total(); n != 0 {
		t.Errorf("%d commands of a closed Locker", n)
	}
}

package mutex_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/leasehold-go/leasehold/backends/memory"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/mutex"
)

// bubble runs f in a synctest bubble with a mock clock that drives both the Locker and its memory backend.
func bubble(t *testing.T, f func(t *testing.T, clk *clock.Mock, b *memory.Backend, l *mutex.Locker), opts ...mutex.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		clk := clock.NewMock()
		b := memory.New(memory.WithClock(clk))
		l, err := mutex.New(b, append([]mutex.Option{mutex.WithClock(clk)}, opts...)...)
		if err != nil {
			t.Fatal(err)
		}
		f(t, clk, b, l)
		if err := l.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

func TestLocker_LockRenewRelease(t *testing.T) {
	bubble(t, func(t *testing.T, clk *clock.Mock, b *memory.Backend, l *mutex.Locker) {
		ctx := context.Background()
		h, err := l.Lock(ctx, "orders:42")
		if err != nil {
			t.Fatal(err)
		}
		clk.Add(10 * mutex.DefaultTTL)
		if !h.Valid() {
			t.Fatalf("not valid after 10 TTL: %v", h.Err())
		}
		if _, err := l.TryLock(ctx, "orders:42"); !errors.Is(err, lease.ErrHeld) {
			t.Fatalf("TryLock of a held name: %v, want ErrHeld", err)
		}
		if err := h.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if got := h.State(); got != lease.Released {
			t.Errorf("state %v, want released", got)
		}
		h2, err := l.TryLock(ctx, "orders:42")
		if err != nil {
			t.Fatal(err)
		}
		if h2.Token() <= h.Token() {
			t.Errorf("token %d after %d", h2.Token(), h.Token())
		}
	})
}

func TestLocker_HandOver(t *testing.T) {
	bubble(t, func(t *testing.T, clk *clock.Mock, b *memory.Backend, l *mutex.Locker) {
		ctx := context.Background()
		first, err := l.Lock(ctx, "x")
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan *lease.Handle)
		go func() {
			h, err := l.Lock(ctx, "x")
			if err != nil {
				t.Error(err)
			}
			got <- h
		}()
		clk.Add(40 * time.Second)
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		h := <-got
		clk.Add(time.Hour)
		if !h.Valid() {
			t.Error(h.Err())
		}
	})
}

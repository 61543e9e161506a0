package lease_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/benbjohnson/clock"

	"github.com/leasehold-go/leasehold/lease"
)

func TestHandle_Held(t *testing.T) {
	type key struct{}
	clk := clock.NewMock()
	s, h := newHandle(context.WithValue(context.Background(), key{}, "value"), clk)
	if h.Name() != "x" || h.Token() != 7 || h.State() != lease.Held || h.Err() != nil || !h.Valid() || h.Remaining() != length {
		t.Errorf("got %q, %d, %v, %v, %v", h.Name(), h.Token(), h.State(), h.Err(), h.Remaining())
	}
	if !h.TrustedUntil().Equal(clk.Now().Add(length)) || !h.ExpiresAt().Equal(clk.Now().Add(length)) {
		t.Errorf("trusted until %v, expires at %v", h.TrustedUntil(), h.ExpiresAt())
	}
	if lost, done := h.Lost(), h.Done(); isClosed(lost) || isClosed(done) || h.Lost() != lost || h.Done() != done {
		t.Error("want the same open channels each time")
	}
	if ctx := h.Context(); ctx.Err() != nil || ctx.Value(key{}) != "value" || lease.FromContext(ctx) != h {
		t.Error("Context is no live child that carries the handle")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := h.Renew(ctx); !errors.Is(err, context.Canceled) || s.renewed.Load() != 0 {
		t.Errorf("Renew on a dead ctx: %v", err)
	}
	if err := h.RenewFor(context.Background(), lease.MinTTL-1); !errors.Is(err, lease.ErrInvalid) || s.renewed.Load() != 0 {
		t.Errorf("RenewFor out of bounds: %v", err)
	}
	if err := errors.Join(h.Renew(context.Background()), h.RenewFor(context.Background(), time.Minute), h.Release(ctx), h.Close()); err != nil {
		t.Error(err)
	}
	if s.renewed.Load() != 2 || s.released.Load() != 2 {
		t.Errorf("%d renewals and %d releases were passed on", s.renewed.Load(), s.released.Load())
	}
}

func TestHandle_ValidEndsWithTheTrust(t *testing.T) {
	clk := clock.NewMock()
	_, h := newHandle(context.Background(), clk)
	clk.Set(clk.Now().Add(length - 1))
	if !h.Valid() || h.Remaining() != 1 {
		t.Errorf("1 ns before the end: %v, %v", h.Valid(), h.Remaining())
	}
	clk.Set(clk.Now().Add(1))
	if h.Valid() || h.Remaining() != 0 || h.State() != lease.Held {
		t.Errorf("at the end: %v, %v", h.Valid(), h.Remaining())
	}
}

// All that C78 asks of a handle that never was.
func TestC78_NilHandle(t *testing.T) {
	var h *lease.Handle
	var noCtx context.Context
	ctx := context.Background()
	if h.Name() != "" || h.Token() != 0 || h.State() != 0 || h.State().String() != "none" || h.Valid() || h.Remaining() != 0 {
		t.Error("a nil handle claims something")
	}
	if !h.ExpiresAt().IsZero() || !h.TrustedUntil().IsZero() {
		t.Error("a nil handle has times")
	}
	if !isClosed(h.Lost()) || !isClosed(h.Done()) {
		t.Error("Lost and Done must be closed: a nil channel would block for ever")
	}
	if c := h.Context(); c == nil || !errors.Is(c.Err(), context.Canceled) || !errors.Is(context.Cause(c), lease.ErrNotOwner) {
		t.Error("Context must be cancelled")
	}
	for name, err := range map[string]error{"Err": h.Err(), "Renew": h.Renew(ctx), "RenewFor": h.RenewFor(ctx, time.Minute)} {
		if !errors.Is(err, lease.ErrNotOwner) {
			t.Errorf("%s: %v, want ErrNotOwner", name, err)
		}
	}
	if err := h.RenewFor(ctx, 1); !errors.Is(err, lease.ErrInvalid) {
		t.Errorf("RenewFor out of bounds: %v", err)
	}
	if err := errors.Join(h.Release(ctx), h.Release(noCtx), h.Close()); err != nil {
		t.Errorf("Release and Close: %v, want nil", err)
	}
	if got := lease.FromContext(ctx); got != nil || got.Valid() {
		t.Errorf("FromContext without a handle: %v", got)
	}
}

func TestFromContext_Innermost(t *testing.T) {
	clk := clock.NewMock()
	type key struct{}
	_, outer := newHandle(context.Background(), clk)
	_, inner := newHandle(outer.Context(), clk)
	derived, cancel := context.WithTimeout(context.WithValue(inner.Context(), key{}, 1), time.Hour)
	defer cancel()
	if lease.FromContext(derived) != inner || lease.FromContext(outer.Context()) != outer || lease.FromContext(context.WithoutCancel(derived)) != inner {
		t.Error("not the innermost handle")
	}
}

func TestHandle_ContextEndsWithItsParent(t *testing.T) {
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(context.Background())
	s, h := newHandle(ctx, clock.NewMock())
	c := h.Context()
	cancel(why)
	<-c.Done()
	if !errors.Is(context.Cause(c), why) || h.State() != lease.Held || h.Err() != nil || isClosed(h.Done()) || isClosed(h.Lost()) {
		t.Errorf("cause %v, state %v", context.Cause(c), h.State())
	}
	s.End(lease.Lost, lost(lease.Missing))
	if !errors.Is(h.Err(), lease.ErrLost) {
		t.Error(h.Err())
	}
}

// realNow has a monotonic reading.
var realNow = time.Now()

// twoClocks shows a monotonic and a wall time that are set apart.
type twoClocks struct {
	*clock.Mock
	mono, wall time.Duration // whole seconds
}

func (c *twoClocks) Now() time.Time {
	t := realNow.Add(c.mono)
	*(*uint64)(unsafe.Pointer(&t)) += uint64((c.wall-c.mono)/time.Second) << 30 // seconds of the wall clock
	return t
}

func TestHandle_TheShorterClockCounts(t *testing.T) {
	for _, c := range []struct {
		mono, wall, left time.Duration
		checks           int32
	}{
		{0, 0, length, 0},
		{3 * time.Second, 3 * time.Second, length - 3*time.Second, 0},
		{3 * time.Second, 5 * time.Second, length - 5*time.Second, 0},
		{3 * time.Second, -time.Hour, length - 3*time.Second, 0},
		{3 * time.Second, length, 0, 1}, // suspended, or the wall clock was set
		{3 * time.Second, time.Hour, 0, 1},
		{length, 0, 0, 0},
		{length, time.Hour, 0, 0}, // the end of trust is no question
	} {
		clk := &twoClocks{Mock: clock.NewMock()}
		s, h := newHandle(context.Background(), clk)
		clk.mono, clk.wall = c.mono, c.wall
		if got := h.Remaining(); got != c.left || s.checked.Load() != c.checks {
			t.Errorf("%+v: %v left, %d checks", c, got, s.checked.Load())
		}
		if h.Valid() != (c.left > 0) {
			t.Errorf("%+v: Valid %v", c, h.Valid())
		}
	}
}

// A handle that was dropped is noticed, and whoever keeps its context keeps it.
func TestC76_Abandoned(t *testing.T) {
	for name, keep := range map[string]func(*lease.Handle) context.Context{
		"Nothing": nil,
		"Context": func(h *lease.Handle) context.Context { return h.Context() },
		"Derived": func(h *lease.Handle) context.Context {
			ctx, cancel := context.WithCancel(h.Context())
			_ = cancel
			return ctx
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &supervised{}
			var kept context.Context
			func() {
				clk := clock.NewMock()
				s.Init(context.Background(), clk, s, "x", lease.Grant{Token: 1}, clk.Now().Add(length))
				h := s.Handle()
				h.Lost()
				h.Done()
				if keep != nil {
					kept = keep(h)
				}
			}()
			for range 50 {
				runtime.GC()
				if s.Abandoned() {
					break
				}
				runtime.Gosched()
			}
			if keep != nil {
				if s.Abandoned() || lease.FromContext(kept) == nil {
					t.Fatal("dropped although its context is kept")
				}
				runtime.KeepAlive(kept)
				return
			}
			for deadline := time.Now().Add(10 * time.Second); !s.Abandoned(); runtime.GC() {
				if time.Now().After(deadline) {
					t.Fatal("not noticed")
				}
			}
		})
	}
}

// Whoever is woken by one signal finds the others given. Each round races three watchers and one who looks at everything in turn.
func TestC42_SignalsAgreeUnderRace(t *testing.T) {
	rounds := 10_000
	if testing.Short() {
		rounds = 1000
	}
	clk := clock.NewMock()
	var failed atomic.Int32
	for i := range rounds {
		s, h := newHandle(context.Background(), clk)
		end, err := lease.Lost, lost(lease.Taken)
		if i%2 == 0 {
			end, err = lease.Released, lease.ErrReleased
		}
		check := func(woken string) {
			if h.State() != end || h.Err() != err || !isClosed(h.Done()) || isClosed(h.Lost()) != (end == lease.Lost) || h.Valid() ||
				h.Context().Err() == nil || context.Cause(h.Context()) != err {
				failed.Add(1)
				t.Errorf("woken by %s: state %v, error %v, done %v, lost %v, context %v with cause %v", woken, h.State(), h.Err(),
					isClosed(h.Done()), isClosed(h.Lost()), h.Context().Err(), context.Cause(h.Context()))
			}
		}
		lostCh, done, ctx := h.Lost(), h.Done(), h.Context()
		derived, cancel := context.WithCancel(ctx)
		var all sync.WaitGroup
		if end == lease.Lost {
			all.Go(func() { <-lostCh; check("Lost") })
		}
		all.Go(func() { <-done; check("Done") })
		all.Go(func() {
			<-ctx.Done()
			if (context.Cause(ctx) == err && end == lease.Lost) != isClosed(lostCh) {
				t.Error("the context ended with ErrLost, and a channel that was obtained before is open")
			}
			check("Context")
		})
		all.Go(func() { <-derived.Done(); check("a derived context") })
		all.Go(func() {
			for h.State() == lease.Held {
				runtime.Gosched()
			}
			check("State")
		})
		all.Go(func() {
			for ctx.Err() == nil {
				runtime.Gosched()
			}
			check("Err of the context")
		})
		s.End(end, err)
		all.Wait()
		cancel()
		if failed.Load() > 5 {
			t.FailNow()
		}
	}
}

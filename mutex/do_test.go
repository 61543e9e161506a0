package mutex_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/lease/leasetest"
)

func TestDo(t *testing.T) {
	own := errors.New("fn's own")
	down := errors.New("down")
	lose := func(w *world, h *lease.Handle) {
		w.deleteRecord("x")
		_ = h.Renew(w.ctx)
	}
	for name, c := range map[string]struct {
		fn  func(w *world, h *lease.Handle) error
		is  []error // nil: no error
		not []error
	}{
		"OK":              {func(*world, *lease.Handle) error { return nil }, nil, nil},
		"FnFails":         {func(*world, *lease.Handle) error { return own }, is(own), is(lease.ErrLost)},
		"LostUnnoticed":   {func(w *world, h *lease.Handle) error { lose(w, h); return nil }, is(lease.ErrLost), is(own)},
		"LostAndFnFails":  {func(w *world, h *lease.Handle) error { lose(w, h); return own }, is(lease.ErrLost, own), nil},
		"LostAndReported": {func(w *world, h *lease.Handle) error { lose(w, h); return h.Err() }, is(lease.ErrLost), nil},
		"FnReleases":      {func(w *world, h *lease.Handle) error { return h.Release(w.ctx) }, nil, nil},
		"ReleaseFails": {func(w *world, h *lease.Handle) error {
			w.faults.Next(leasetest.OpRelease, fail(down))
			return nil
		}, is(down), is(lease.ErrLost)},
		"ReleaseFailsAndFnToo": {func(w *world, h *lease.Handle) error {
			w.faults.Next(leasetest.OpRelease, fail(down))
			return own
		}, is(down, own), is(lease.ErrLost)},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				var h *lease.Handle
				err := w.locks.Do(w.ctx, "x", func(ctx context.Context, handle *lease.Handle) error {
					h = handle
					if lease.FromContext(ctx) != h || ctx.Err() != nil {
						w.Error("fn's ctx is not the handle's")
					}
					w.wantHeld(h)
					return c.fn(w, h)
				})
				if c.is == nil && err != nil {
					w.Errorf("got error %v", err)
				}
				if c.is != nil {
					wantMatch(w, err, c.is, c.not...)
					if n := strings.Count(err.Error(), "lost"); n > 1 {
						w.Errorf("the loss is told %d times: %v", n, err)
					}
				}
				if !h.State().Terminal() {
					w.Error("the handle is held after Do")
				}
			})
		})
	}
}

// The end of the caller's ctx ends fn's; the lease is held and renewed until fn returns.
func TestDo_CallersContextEnds(t *testing.T) {
	inBubble(t, func(w *world) {
		ctx, cancel := context.WithCancel(w.ctx)
		err := w.locks.Do(ctx, "x", func(ctx context.Context, h *lease.Handle) error {
			cancel()
			<-ctx.Done()
			w.advance(5 * T) // clean-up takes its time
			w.wantHolder("x", h)
			if !h.Valid() || isClosed(h.Done()) {
				w.Error(describe(h))
			}
			return context.Cause(ctx)
		})
		wantMatch(w, err, is(context.Canceled), lease.ErrLost, lease.ErrReleased)
		w.wantFree("x")
	})
}

func TestDo_LossEndsFnsContext(t *testing.T) {
	inBubble(t, func(w *world) {
		err := w.locks.Do(w.ctx, "x", func(ctx context.Context, h *lease.Handle) error {
			w.faults.Partition()
			w.advance(T)
			<-ctx.Done()
			w.faults.Heal()
			return context.Cause(ctx)
		})
		wantMatch(w, err, is(lease.ErrLost, context.DeadlineExceeded))
	})
}

func TestDo_LockerIsClosed(t *testing.T) {
	inBubble(t, func(w *world) {
		l := w.locker(w.net)
		err := l.Do(w.ctx, "x", func(ctx context.Context, h *lease.Handle) error {
			if err := l.Close(w.ctx); err != nil {
				w.Error(err)
			}
			<-ctx.Done()
			return nil
		})
		var lost *lease.LostError
		if !errors.As(err, &lost) || lost.Reason != lease.Closed {
			w.Errorf("got %v, want a loss for the reason Closed", err)
		}
	})
}

func TestDo_Invalid(t *testing.T) {
	inBubble(t, func(w *world) {
		wantMatch(w, w.locks.Do(w.ctx, "x", nil), is(lease.ErrInvalid))
		var noCtx context.Context
		called := func(context.Context, *lease.Handle) error { w.Error("fn was called"); return nil }
		wantMatch(w, w.locks.Do(w.ctx, "", called), is(lease.ErrInvalid))
		wantMatch(w, w.locks.Do(noCtx, "x", called), is(lease.ErrInvalid))
		ctx, cancel := context.WithCancel(w.ctx)
		cancel()
		wantMatch(w, w.locks.Do(ctx, "x", called), is(context.Canceled))
		if n := len(w.faults.Calls()); n != 0 {
			w.Errorf("%d calls", n)
		}
	})
}

// A test that fails inside fn ends its goroutine: the lease is released even so.
func TestDo_GoexitReleases(t *testing.T) {
	inBubble(t, func(w *world) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = w.locks.Do(w.ctx, "x", func(context.Context, *lease.Handle) error { runtime.Goexit(); return nil })
		}()
		<-done
		w.wantFree("x")
	})
}

func TestDo_RunsOneAtATime(t *testing.T) {
	inBubble(t, func(w *world) {
		inside := 0
		done := make(chan struct{})
		for range 20 {
			go func() {
				err := w.locks.Do(w.ctx, "x", func(ctx context.Context, h *lease.Handle) error {
					inside++ // the race detector watches too
					if inside != 1 {
						w.Error("two at once")
					}
					nap(ctx, w, time.Second)
					inside--
					return nil
				})
				if err != nil {
					w.Error(err)
				}
				done <- struct{}{}
			}()
		}
		w.advance(time.Minute)
		for range 20 {
			<-done
		}
	})
}

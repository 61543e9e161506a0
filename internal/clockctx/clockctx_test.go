package clockctx_test

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold/internal/clockctx"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func timers(clk *clock.Mock) int { return reflect.ValueOf(clk).Elem().FieldByName("timers").Len() }

func isDone(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

func TestWithTimeout_EndsOnTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		clk := clock.NewMock()
		ctx, cancel := clockctx.WithTimeout(context.WithValue(context.Background(), key{}, "value"), clk, time.Second)
		defer cancel()
		if _, ok := ctx.Deadline(); ok || ctx.Value(key{}) != "value" {
			t.Error("want the parent's values and no deadline, which would mean nothing elsewhere")
		}
		clk.Add(time.Second - 1)
		if isDone(ctx) || ctx.Err() != nil {
			t.Error("ended 1 ns too early")
		}
		clk.Add(1)
		if !isDone(ctx) || ctx.Err() != context.DeadlineExceeded || context.Cause(ctx) != context.DeadlineExceeded {
			t.Errorf("at the end: %v, cause %v", ctx.Err(), context.Cause(ctx))
		}
		cancel()
		if ctx.Err() != context.DeadlineExceeded {
			t.Errorf("an end that came later changed the error to %v", ctx.Err())
		}
	})
}

func TestWithTimeout_Cancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clk := clock.NewMock()
		ctx, cancel := clockctx.WithTimeout(context.Background(), clk, time.Second)
		cancel()
		cancel()
		if !isDone(ctx) || ctx.Err() != context.Canceled || timers(clk) != 0 {
			t.Errorf("%v, %d timers", ctx.Err(), timers(clk))
		}
		clk.Add(time.Minute)
		if ctx.Err() != context.Canceled {
			t.Error(ctx.Err())
		}
	})
}

func TestWithTimeout_ParentEnds(t *testing.T) {
	why := errors.New("why")
	synctest.Test(t, func(t *testing.T) {
		clk := clock.NewMock()
		parent, end := context.WithCancelCause(context.Background())
		ctx, cancel := clockctx.WithTimeout(parent, clk, time.Second)
		defer cancel()
		end(why)
		synctest.Wait()
		if !isDone(ctx) || ctx.Err() != context.Canceled || context.Cause(ctx) != why || timers(clk) != 0 {
			t.Errorf("%v, cause %v, %d timers", ctx.Err(), context.Cause(ctx), timers(clk))
		}
	})
}

// The parent's end finds a context that is only just being made.
func TestWithTimeout_ParentHasEnded(t *testing.T) {
	for range 2000 {
		clk := clock.NewMock()
		parent, end := context.WithCancel(context.Background())
		end()
		ctx, cancel := clockctx.WithTimeout(parent, clk, time.Second)
		<-ctx.Done()
		if ctx.Err() != context.Canceled {
			t.Fatal(ctx.Err())
		}
		cancel()
	}
}

func TestWithTimeout_ParentEndsMeanwhile(t *testing.T) {
	for range 2000 {
		clk := clock.NewMock()
		parent, end := context.WithCancel(context.Background())
		go end()
		ctx, cancel := clockctx.WithTimeout(parent, clk, time.Second)
		<-ctx.Done()
		cancel()
	}
}

func TestWithTimeout_ClockMovesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 1000 {
			clk := clock.NewMock()
			var all sync.WaitGroup
			all.Go(func() { clk.Add(time.Second) })
			ctx, cancel := clockctx.WithTimeout(context.Background(), clk, 1)
			all.Wait()
			clk.Add(1)
			<-ctx.Done()
			cancel()
		}
	})
}

func TestWithTimeout_ChildrenEndToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clk := clock.NewMock()
		ctx, cancel := clockctx.WithTimeout(context.Background(), clk, time.Second)
		defer cancel()
		child, cancelChild := context.WithCancel(ctx)
		defer cancelChild()
		nested, cancelNested := clockctx.WithTimeout(child, clk, time.Hour)
		defer cancelNested()
		apart := context.WithoutCancel(ctx)
		called := make(chan struct{})
		defer context.AfterFunc(ctx, func() { close(called) })()
		clk.Add(time.Second)
		synctest.Wait()
		<-called
		for name, c := range map[string]context.Context{"child": child, "nested": nested} {
			if c.Err() != context.DeadlineExceeded {
				t.Errorf("%s: %v, want the deadline", name, c.Err())
			}
		}
		if apart.Err() != nil {
			t.Error("WithoutCancel does not hold")
		}
		if timers(clk) != 0 {
			t.Errorf("%d timers left", timers(clk))
		}
	})
}

// A shorter one inside a longer one ends alone.
func TestWithTimeout_NestedEndsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clk := clock.NewMock()
		outer, cancelOuter := clockctx.WithTimeout(context.Background(), clk, time.Hour)
		defer cancelOuter()
		inner, cancelInner := clockctx.WithTimeout(outer, clk, time.Second)
		defer cancelInner()
		clk.Add(time.Second)
		if inner.Err() != context.DeadlineExceeded || outer.Err() != nil {
			t.Errorf("inner %v, outer %v", inner.Err(), outer.Err())
		}
	})
}

func TestWithTimeout_NoTimeLeft(t *testing.T) {
	for _, d := range []time.Duration{0, -1, -time.Hour} {
		clk := clock.NewMock()
		ctx, cancel := clockctx.WithTimeout(context.Background(), clk, d)
		if ctx.Err() != context.DeadlineExceeded || timers(clk) != 0 {
			t.Errorf("%v: %v", d, ctx.Err())
		}
		cancel()
	}
}

// Every way to end, at once, from everywhere.
func TestWithTimeout_EndsRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends := make(map[error]int)
		for range 2000 {
			clk := clock.NewMock()
			parent, end := context.WithCancel(context.Background())
			ctx, cancel := clockctx.WithTimeout(parent, clk, 1)
			child, cancelChild := context.WithCancel(ctx)
			var all sync.WaitGroup
			all.Go(func() { clk.Add(1) })
			all.Go(end)
			all.Go(cancel)
			all.Go(cancel)
			all.Go(func() {
				<-ctx.Done()
				if ctx.Err() == nil {
					t.Error("done without an error")
				}
			})
			all.Wait()
			err := ctx.Err()
			<-child.Done()
			synctest.Wait()
			if ctx.Err() != err || timers(clk) != 0 {
				t.Fatalf("error %v became %v; %d timers", err, ctx.Err(), timers(clk))
			}
			ends[err]++
			cancelChild()
		}
		t.Logf("ends: %v", ends)
	})
}

func TestWithTimeout_RealClock(t *testing.T) {
	ctx, cancel := clockctx.WithTimeout(context.Background(), clock.New(), time.Hour)
	defer cancel()
	deadline, ok := ctx.Deadline()
	if left := time.Until(deadline); !ok || left > time.Hour || left < 59*time.Minute {
		t.Errorf("deadline in %v, %v: I/O must know it", left, ok)
	}
	short, cancelShort := clockctx.WithTimeout(context.Background(), clock.New(), time.Millisecond)
	defer cancelShort()
	<-short.Done()
	if short.Err() != context.DeadlineExceeded {
		t.Error(short.Err())
	}
}

type wrapped struct{ clock.Clock }

func TestIsReal(t *testing.T) {
	for name, c := range map[string]struct {
		clk  clock.Clock
		want bool
	}{
		"Real": {clock.New(), true}, "Mock": {clock.NewMock(), false}, "Wrapped": {wrapped{clock.New()}, false},
	} {
		if got := clockctx.IsReal(c.clk); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

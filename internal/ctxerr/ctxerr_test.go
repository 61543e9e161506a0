package ctxerr_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/ctxerr"
)

func TestOf(t *testing.T) {
	why := errors.New("why")
	for name, c := range map[string]struct {
		ctx  func() (context.Context, func())
		is   []error
		text string
	}{
		"Live": {func() (context.Context, func()) { return context.Background(), func() {} }, nil, ""},
		"Cancelled": {func() (context.Context, func()) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return ctx, cancel
		}, []error{context.Canceled}, "context canceled"},
		"Cause": {func() (context.Context, func()) {
			ctx, cancel := context.WithCancelCause(context.Background())
			cancel(why)
			return ctx, func() {}
		}, []error{context.Canceled, why}, "context canceled: why"},
		"CauseThatMatches": {func() (context.Context, func()) {
			ctx, cancel := context.WithCancelCause(context.Background())
			cancel(errors.Join(context.Canceled, why))
			return ctx, func() {}
		}, []error{context.Canceled}, "context canceled"},
		"Deadline": {func() (context.Context, func()) {
			ctx, cancel := context.WithDeadline(context.Background(), time.Unix(0, 0))
			return ctx, cancel
		}, []error{context.DeadlineExceeded}, "context deadline exceeded"},
		"DeadlineCause": {func() (context.Context, func()) {
			ctx, cancel := context.WithDeadlineCause(context.Background(), time.Unix(0, 0), why)
			return ctx, cancel
		}, []error{context.DeadlineExceeded, why}, "context deadline exceeded: why"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := c.ctx()
			defer cancel()
			err := ctxerr.Of(ctx)
			if (err == nil) != (c.is == nil) {
				t.Fatalf("got %v", err)
			}
			for _, want := range c.is {
				if !errors.Is(err, want) {
					t.Errorf("%v does not match %v", err, want)
				}
			}
			if err != nil && err.Error() != c.text {
				t.Errorf("got %q, want %q", err, c.text)
			}
		})
	}
}

func TestOf_Timeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := ctxerr.Of(ctx); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if err := ctxerr.Of(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

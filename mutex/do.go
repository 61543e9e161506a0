package mutex

import (
	"context"
	"errors"

	"github.com/leasehold-go/leasehold/lease"
)

// Do locks name, calls fn, and releases. fn's ctx is the handle's: it ends with the caller's ctx and with the lease. The lease
// is held and renewed until fn has returned, however long after the end of ctx that is.
//
// Do blocks like Lock, then until fn returns, then like Handle.Release. If no lease was granted, fn is not called and the error is
// that of Lock. Otherwise the error joins fn's and the release's: if it matches lease.ErrLost, the lease was lost while fn ran, even if fn
// noticed nothing. If fn panics, the lease is released and the panic passes on.
func (l *Locker) Do(ctx context.Context, name string, fn func(context.Context, *lease.Handle) error, opts ...Option) (err error) {
	if fn == nil {
		return &lease.OptionError{Option: "fn", Value: nil, Problem: "must not be nil"}
	}
	h, err := l.Lock(ctx, name, opts...)
	if err != nil {
		return err
	}
	defer func() {
		released := h.Release(ctx)
		if released != nil && !errors.Is(err, released) { // fn may have returned the handle's own error
			err = errors.Join(err, released)
		}
	}()
	return fn(h.Context(), h)
}

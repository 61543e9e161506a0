package lease

import "context"

// FromContext returns the handle whose Context ctx is or derives from, the innermost one if there are several, or nil. A nil
// handle is safe to use: it is as good as lost.
func FromContext(ctx context.Context) *Handle {
	h, _ := ctx.Value(handleKey{}).(*Handle)
	return h
}

type handleKey struct{}

// handleContext is what Handle.Context returns. It refers to the handle, so that whoever keeps the context keeps the handle.
//
// Err and Value pass through the control's mutex. So a goroutine that was woken by another signal of the handle, in the middle
// of End, waits for the rest of them: context.Err and context.Cause, which asks Value, never disagree with Lost and Done.
type handleContext struct {
	context.Context
	h *Handle
}

func (c *handleContext) Err() error {
	c.settle()
	return c.Context.Err()
}

func (c *handleContext) Value(key any) any {
	if key == (handleKey{}) {
		return c.h
	}
	c.settle()
	return c.Context.Value(key)
}

// settle waits until an End that is under way has given all signals.
func (c *handleContext) settle() {
	c.h.c.mu.Lock()
	//lint:ignore SA2001 entering is the point
	c.h.c.mu.Unlock()
}

// noContext belongs to nil handles.
var noContext = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(ErrNotOwner)
	return ctx
}()

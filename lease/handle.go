package lease

import (
	"context"
	"runtime"
	"time"

	"github.com/leasehold-go/leasehold/internal/ctxerr"
)

// Handle is one grant of a lease, from the moment it was granted to its release or loss. All methods are safe for concurrent
// use, and safe on a nil *Handle, which never held anything.
type Handle struct {
	c *Control
}

// closed is what a nil handle gives for Lost and Done: a nil channel would block for ever.
var closed = func() chan struct{} { ch := make(chan struct{}); close(ch); return ch }()

// watchCollection lets the supervisor know when h, and every context that refers to it, is gone. Only a flag is set: the
// cleanup runs on a goroutine of the runtime, and the supervisor looks before each renewal anyway.
func (h *Handle) watchCollection() {
	runtime.AddCleanup(h, func(c *Control) { c.abandoned.Store(true) }, h.c)
}

// Name returns the lease's name as the caller wrote it; "" on a nil handle.
func (h *Handle) Name() string {
	if h == nil {
		return ""
	}
	return h.c.name
}

// Token returns the fencing token, fixed at the grant; 0 on a nil handle. It belongs with every write that the lease guards.
func (h *Handle) Token() Token {
	if h == nil {
		return 0
	}
	return h.c.token
}

// ExpiresAt returns the expiry as the backend's own clock states it: to show and to log. It decides nothing: the backend's
// clock may differ from this machine's. It is the zero Time on a nil handle.
func (h *Handle) ExpiresAt() time.Time {
	if h == nil {
		return time.Time{}
	}
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	return h.c.expiresAt
}

// TrustedUntil returns the instant at which the trust in the lease ends unless it is renewed: counted on this machine's
// monotonic clock from before the request left that won or renewed the lease, less Margin. The record in the backend cannot
// have expired before. It is the zero Time on a nil handle.
func (h *Handle) TrustedUntil() time.Time {
	if h == nil {
		return time.Time{}
	}
	return h.c.Trust()
}

// Remaining returns the trust that is left: 0 once the lease has ended or its trust is over. It is judged by the monotonic and
// by the wall clock, and the shorter one counts, since a suspended machine stops the former. It asks only local clocks, never the store.
func (h *Handle) Remaining() time.Duration {
	if h == nil {
		return 0
	}
	left, suspect := h.c.remaining()
	if suspect {
		h.c.sup.Check()
	}
	return left
}

// Valid reports whether the lease is held and trusted at this moment: what code asks right before it acts. It asks only local
// clocks, never the store; a write that must not be late needs the fencing token all the same.
func (h *Handle) Valid() bool { return h.Remaining() > 0 }

// Lost returns a channel that is closed when the lease is lost: at the latest at TrustedUntil, whatever any call in flight
// does. It is never closed by a release. A select in which work is ready too may pick the work once more after the loss; the
// token is what refuses that write. Keeping only the channel does not keep the handle: see Context. On a nil handle it is
// closed.
func (h *Handle) Lost() <-chan struct{} {
	if h == nil {
		return closed
	}
	return h.c.lostChan()
}

// Done returns a channel that is closed when the handle ends, lost or released. On a nil handle it is closed.
func (h *Handle) Done() <-chan struct{} {
	if h == nil {
		return closed
	}
	return h.c.Ended()
}

// Err returns nil while the lease is held, then why it ended: a *LostError, which matches ErrLost, or ErrReleased. On a nil
// handle it is ErrNotOwner.
func (h *Handle) Err() error {
	if h == nil {
		return ErrNotOwner
	}
	return h.c.Err()
}

// State returns Held, Released or Lost. The last two are final. On a nil handle it is the zero State.
func (h *Handle) State() State {
	if h == nil {
		return 0
	}
	return h.c.State()
}

// Context returns a context that ends with the handle; then context.Cause is Err. It is a child of the ctx given to Lock: it
// has its values and ends with it too, which neither stops renewal nor releases the lease. FromContext finds the handle in it
// and in all that derives from it, and it keeps the handle from being taken for dropped. On a nil handle it is a cancelled context.
func (h *Handle) Context() context.Context {
	if h == nil {
		return noContext
	}
	return &handleContext{Context: h.c.context(), h: h}
}

// Renew makes one confirmed renewal now, for the length that the lease has. It looks at ctx first, then at the state, then
// asks the backend, and blocks until the answer, the end of ctx, the bound on one backend call, or the end of the lease.
//
// A nil error means that the backend confirmed. ErrLost means that it refused, or that the trust is over: the handle is
// lost. ErrReleased means what it says. After any other error the outcome is unknown; the handle is held as before until its
// trust ends (under strict renewal it is lost at once). Calls at the same time share one request.
func (h *Handle) Renew(ctx context.Context) error { return h.renew(ctx, 0) }

// RenewFor is Renew with another length. From the confirmation on it is the lease's length, and the renewal interval grows or
// shrinks with it. A shorter length never makes the lease end earlier than it did: what was granted before runs out first. To free
// a name early, release it. A ttl out of bounds is an *OptionError, and nothing is sent.
func (h *Handle) RenewFor(ctx context.Context, ttl time.Duration) error {
	if err := CheckTTL("ttl", ttl); err != nil {
		return err
	}
	return h.renew(ctx, ttl)
}

func (h *Handle) renew(ctx context.Context, ttl time.Duration) error {
	if ctx == nil {
		return &OptionError{Option: "ctx", Value: nil, Problem: "must not be nil"}
	}
	if err := ctxerr.Of(ctx); err != nil {
		return err
	}
	if h == nil {
		return ErrNotOwner
	}
	defer runtime.KeepAlive(h)
	return h.c.sup.Renew(ctx, ttl)
}

// Release gives the lease back. Renewal has stopped and Done is closed before the delete is sent; only then can anybody else
// be granted the name. When Release returns, no goroutine and no timer of the handle is left, except a backend call that
// ignores its context.
//
// Release blocks for one backend call, which has a bound of its own: a third of the TTL, at most 5 s. ctx lends its values, but
// its end does not stop the call, because a release on a dead context is how locks leak.
//
// Nil means that nobody else held the lease between the grant and this call. ErrLost means that somebody may have: the lease
// was lost before, or the backend no longer had it on record. Any other error is the backend's: the lease may
// live on for the rest of its TTL, and Release may be tried again. Concurrent and repeated calls share one delete and its
// outcome. On a nil handle Release does nothing.
func (h *Handle) Release(ctx context.Context) error {
	if h == nil {
		return nil
	}
	if ctx == nil {
		ctx = context.Background() // a release must not fail for the want of values
	}
	defer runtime.KeepAlive(h)
	return h.c.sup.Release(ctx)
}

// Close is Release on a context of its own, for defer.
func (h *Handle) Close() error { return h.Release(context.Background()) }

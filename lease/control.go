package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
)

// Supervisor is what a Handle passes commands to. It is for authors of supervisors; package renewal has the one that the
// mutex package uses. Both methods are safe for concurrent use.
type Supervisor interface {
	// Renew makes one confirmed renewal for ttl, or for the lease's present length when ttl is 0.
	Renew(ctx context.Context, ttl time.Duration) error
	// Release ends the lease and tells whether anybody else held it before.
	Release(ctx context.Context) error
	// Check asks for an early look at the clock and the store. It never blocks.
	Check()
}

// Control is the supervisor's end of a Handle: the lease's state, and the only way to change it. It is for authors of
// supervisors, who embed one in what they run and call Init and Handle once. All methods are safe for concurrent use, but only the
// supervisor's own goroutine calls Extend and End.
//
// A Control never refers to its Handle, so that a handle which its user drops can be collected while it is supervised.
type Control struct {
	// Fixed after Init.
	name   string
	token  Token
	clk    clock.Clock
	parent context.Context
	sup    Supervisor

	abandoned atomic.Bool // set when the handle was collected

	mu        sync.Mutex // guards what follows
	state     State
	err       error
	trust     time.Time     // Invariant: the record cannot have expired before this instant.
	expiresAt time.Time     // as the backend states it
	lost      chan struct{} // made on demand; closed if and only if state is Lost
	done      chan struct{} // made on demand; closed if and only if state is terminal
	ctx       context.Context
	cancel    context.CancelCauseFunc // set with ctx, on demand
}

// Init makes the lease Held, trusted until trust. ctx is the parent of Handle.Context, clk what the trust is judged by, sup what
// the handle passes commands to.
func (c *Control) Init(ctx context.Context, clk clock.Clock, sup Supervisor, name string, g Grant, trust time.Time) {
	c.name, c.token, c.clk, c.parent, c.sup = name, g.Token, clk, ctx, sup
	c.state, c.trust, c.expiresAt = Held, trust, g.ExpiresAt
}

// Handle returns the lease's one handle. It is called once, after Init and before anything else.
func (c *Control) Handle() *Handle {
	h := &Handle{c: c}
	h.watchCollection()
	return h
}

// Name returns the lease's name as the caller wrote it.
func (c *Control) Name() string { return c.name }

// Token returns the lease's token.
func (c *Control) Token() Token { return c.token }

// Values returns a context with the values of the lease's parent context, which never ends: for calls to the backend.
func (c *Control) Values() context.Context { return context.WithoutCancel(c.parent) }

// State returns the present state.
func (c *Control) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Err returns nil while the lease is held, and afterwards what Handle.Err returns.
func (c *Control) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Trust returns the instant at which the trust in the lease ends.
func (c *Control) Trust() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trust
}

// Abandoned reports whether the handle, and every context that it gave out, has been collected.
func (c *Control) Abandoned() bool { return c.abandoned.Load() }

// Extend records a new end of trust and a new expiry; neither ever gets earlier. It does nothing once the lease has ended: what
// comes late never revives a lease.
func (c *Control) Extend(trust, expiresAt time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != Held {
		return
	}
	if !trust.Before(c.trust) { // the same instant may come with another wall reading
		c.trust = trust
	}
	if expiresAt.After(c.expiresAt) {
		c.expiresAt = expiresAt
	}
}

// End makes the one transition of a lease's life, from Held to Released (err is ErrReleased) or to Lost (err is a *LostError),
// and gives all signals. When it returns, they agree; while it runs, whoever was woken by one of them finds the others given,
// because every look takes mu. It panics when the lease has ended before, or for any other pair of state and err.
func (c *Control) End(state State, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	legal := state == Released && errors.Is(err, ErrReleased) || state == Lost && errors.Is(err, ErrLost)
	if c.state != Held || !legal {
		panic(fmt.Sprintf("lease: no transition from %v to %v with error %v", c.state, state, err))
	}
	c.state, c.err = state, err
	// Order matters: who selects on Done or Context and finds ErrLost as the cause may count on Lost being closed.
	if state == Lost && c.lost != nil {
		close(c.lost)
	}
	if c.done != nil {
		close(c.done)
	}
	if c.cancel != nil {
		c.cancel(err)
	}
}

// lostChan returns the channel behind Handle.Lost.
func (c *Control) lostChan() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return signal(&c.lost, c.state == Lost)
}

// Ended returns a channel that is closed when the lease has ended: the one behind Handle.Done.
func (c *Control) Ended() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return signal(&c.done, c.state.Terminal())
}

// signal returns *ch, made if need be. Most handles are never asked for both channels, and 96 bytes each are a tenth of what a
// held lease costs.
func signal(ch *chan struct{}, given bool) <-chan struct{} {
	if *ch == nil {
		*ch = make(chan struct{})
		if given {
			close(*ch)
		}
	}
	return *ch
}

// context returns the context that ends with the lease, made if need be.
func (c *Control) context() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx == nil {
		c.ctx, c.cancel = context.WithCancelCause(c.parent)
		if c.state.Terminal() {
			c.cancel(c.err)
		}
	}
	return c.ctx
}

// remaining returns the trust that is left, 0 unless held, and whether the wall clock says that it is over although the
// monotonic clock does not: the machine may have been suspended, or its wall clock stepped. Then the shorter one counts until
// a renewal has settled it.
func (c *Control) remaining() (left time.Duration, suspect bool) {
	now := c.clk.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != Held {
		return 0, false
	}
	left = c.trust.Sub(now)
	wall := c.trust.Round(0).Sub(now.Round(0))
	return max(0, min(left, wall)), left > 0 && wall <= 0
}

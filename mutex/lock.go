package mutex

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/internal/clockctx"
	"github.com/leasehold-go/leasehold/internal/ctxerr"
	"github.com/leasehold-go/leasehold/lease"
)

// Lock takes the lease on name and returns the handle that holds it. It blocks until the lease is granted, ctx ends, the time
// of WithWait is over, or the Locker is closed. Trouble with the backend does not end the wait: the attempt is repeated.
//
// Without a lease the handle is nil, and the error says which it was: lease.ErrHeld with the context error that ended the wait,
// when the name was held; the context error with the last backend error, when the backend did not answer; lease.ErrPermanent at
// once, when trying again cannot help; lease.ErrInvalid, with nothing sent; lease.ErrClosed. Nothing is left behind, except
// that an attempt still unanswered may keep the name busy for one TTL, never longer.
//
// The end of ctx after the grant cancels Handle.Context and nothing else: the lease is renewed until it is released. Lock may be
// called concurrently, also for one name, and each call has its own handle.
func (l *Locker) Lock(ctx context.Context, name string, opts ...Option) (*lease.Handle, error) {
	return l.lock(ctx, name, opts, false)
}

// TryLock makes one attempt to take the lease on name. When somebody holds it, or waits for it in a queue, the error matches
// lease.ErrHeld and no context error. TryLock blocks for one backend call, bounded by ctx, a third of the TTL, and 5 s.
// Everything else is as with Lock.
func (l *Locker) TryLock(ctx context.Context, name string, opts ...Option) (*lease.Handle, error) {
	return l.lock(ctx, name, opts, true)
}

func (l *Locker) lock(ctx context.Context, name string, opts []Option, try bool) (*lease.Handle, error) {
	st, err := l.defaults.with(opts, lease.CheckName(name), checkContext(ctx))
	if err == nil {
		err = st.checkReach(l.backend)
	}
	if err != nil {
		return nil, err
	}
	if err := ctxerr.Of(ctx); err != nil {
		return nil, fmt.Errorf("lock %q: %w", name, err)
	}
	if err := l.enter(); err != nil {
		return nil, fmt.Errorf("lock %q: %w", name, err)
	}
	defer l.calls.Done()
	cfg := l.config
	if len(opts) > 0 {
		cfg = l.supervision(st)
	}
	c := &call{
		l:     l,
		st:    &st,
		req:   lease.Request{Name: name, Owner: newOwner(), Label: st.label, TTL: st.ttl},
		began: st.clk.Now(),
		try:   try || st.wait == 0,
	}
	w, err := c.win(ctx)
	if err != nil {
		return nil, c.refused(err)
	}
	h, err := l.hold(ctx, cfg, w)
	if err != nil {
		l.withdraw(ctx, &st, c.req)
		return nil, c.refused(fmt.Errorf("lock %q: %w", name, err))
	}
	now := st.clk.Now()
	lease.Notify(st.observer.Acquired, lease.Event{
		Name: name, Token: h.Token(), At: now, Remaining: h.TrustedUntil().Sub(now), Waited: now.Sub(c.began),
	})
	return h, nil
}

// call is one call of Lock or TryLock on its way. It belongs to the calling goroutine.
type call struct {
	// Fixed.
	l     *Locker
	st    *settings
	req   lease.Request
	began time.Time
	try   bool

	told    int           // how often it was told that the name is held
	holder  *lease.Holder // who holds the name, if that was the last news
	lastErr error         // what went wrong, if that was the last news
	loose   bool          // an attempt ended unknown: the owner may have been given something
}

// won is a grant that may be relied on.
type won struct {
	req   lease.Request
	grant lease.Grant
	since time.Time // before the lease began to run
}

// win attempts until the lease is granted or the wait is over.
func (c *call) win(ctx context.Context) (won, error) {
	waitCtx, stop := c.waitContext(ctx)
	defer stop()
	for n := 0; ; n++ {
		w, err := c.attempt(waitCtx)
		if err == nil {
			return w, nil
		}
		over := waitCtx.Err() != nil
		c.note(err, over)
		switch {
		case over:
			return won{}, c.giveUp(ctx, c.overdue(waitCtx))
		case errors.Is(err, lease.ErrInvalid), errors.Is(err, lease.ErrPermanent), errors.Is(err, lease.ErrClosed):
			return won{}, c.giveUp(ctx, fmt.Errorf("lock %q: %w", c.req.Name, err))
		case c.try && c.holder != nil:
			return won{}, c.giveUp(ctx, &lease.HeldError{Name: c.req.Name, Holder: *c.holder})
		case c.try:
			return won{}, c.giveUp(ctx, fmt.Errorf("lock %q: %w", c.req.Name, err))
		}
		if !c.pause(waitCtx, n) {
			return won{}, c.giveUp(ctx, c.overdue(waitCtx))
		}
	}
}

// attempt asks the backend once: it parks in the queue if there is one.
func (c *call) attempt(ctx context.Context) (won, error) {
	sent := c.st.clk.Now()
	told := c.told
	var grant lease.Grant
	var err error
	if c.l.queue != nil && !c.try {
		grant, err = c.l.queue.Wait(ctx, c.req, c.onHeld)
	} else {
		bounded, cancel := clockctx.WithTimeout(ctx, c.st.clk, lease.CallBound(c.req.TTL))
		grant, err = c.l.backend.Acquire(bounded, c.req)
		cancel()
	}
	if err != nil {
		return won{}, err
	}
	parked := c.told > told
	return c.confirm(ctx, won{c.req, grant, sent}, parked)
}

// confirm makes sure that a grant can be relied on from an instant that is known. A lease that was handed over in the queue is
// confirmed by a renewal if the backend cannot say when it began, or if nothing else would make it a full one.
func (c *call) confirm(ctx context.Context, w won, parked bool) (won, error) {
	short := w.grant.TTL+time.Millisecond <= c.req.TTL // a backend may cut the TTL to whole milliseconds
	switch {
	case !w.grant.Since.IsZero():
		w.since = w.grant.Since
		if !short || !c.st.noRenewal {
			break
		}
		fallthrough
	case parked:
		token := w.grant.Token
		w.since = c.st.clk.Now()
		bounded, cancel := clockctx.WithTimeout(ctx, c.st.clk, lease.CallBound(c.req.TTL))
		grant, err := c.l.backend.Renew(bounded, lease.Claim{Name: c.req.Name, Owner: c.req.Owner, Token: token}, c.req.TTL)
		cancel()
		if err != nil {
			return won{}, fmt.Errorf("confirm %q: %w", c.req.Name, err)
		}
		w.grant = grant
	}
	if !c.st.clk.Now().Before(lease.TrustEnd(w.since, w.grant.TTL)) {
		return won{}, errLate
	}
	return w, nil
}

// errLate says that a grant came when it had already run out.
var errLate = errors.New("the grant took longer than the lease runs")

// onHeld takes the news that somebody else holds the name.
func (c *call) onHeld(h lease.Holder) {
	c.told++
	c.holder, c.lastErr = &h, nil
	if c.try {
		return
	}
	waited := c.st.clk.Since(c.began)
	if c.told == 1 {
		lease.Notify(c.st.observer.Waiting, lease.Event{Name: c.req.Name, At: c.st.clk.Now(), Waited: waited})
	}
	if c.st.onWait != nil {
		c.st.onWait(Waiting{Name: c.req.Name, Attempt: c.told, Waited: waited, Holder: h})
	}
}

// note remembers what an attempt that failed has shown. over says that the wait ended, which may be all that the error means.
func (c *call) note(err error, over bool) {
	var held *lease.HeldError
	switch {
	case errors.As(err, &held):
		if held.Cause == nil { // otherwise Wait has told of it before
			c.onHeld(held.Holder)
		}
	case errors.Is(err, lease.ErrHeld):
		c.onHeld(lease.Holder{})
	case errors.Is(err, lease.ErrInvalid), errors.Is(err, lease.ErrPermanent):
	default:
		c.loose = true
		if !over {
			c.holder, c.lastErr = nil, err
		} else if c.holder == nil && c.lastErr == nil {
			c.lastErr = err
		}
	}
}

// overdue is the error of a wait that ended: contention if that was the last news, otherwise what kept the backend from answering.
func (c *call) overdue(ctx context.Context) error {
	err := ctxerr.Of(ctx)
	switch {
	case errors.Is(err, lease.ErrClosed):
		return fmt.Errorf("lock %q: %w", c.req.Name, lease.ErrClosed)
	case c.holder != nil:
		return &lease.HeldError{Name: c.req.Name, Waited: c.st.clk.Since(c.began), Holder: *c.holder, Cause: err}
	case c.lastErr != nil:
		return fmt.Errorf("lock %q: %w: %w", c.req.Name, err, c.lastErr)
	}
	return fmt.Errorf("lock %q: %w", c.req.Name, err)
}

// giveUp returns err, having what the call may have been given taken back.
func (c *call) giveUp(ctx context.Context, err error) error {
	if c.loose {
		c.l.withdraw(ctx, c.st, c.req)
	}
	return err
}

// refused returns err, having told the observer.
func (c *call) refused(err error) error {
	now := c.st.clk.Now()
	lease.Notify(c.st.observer.Refused, lease.Event{Name: c.req.Name, At: now, Waited: now.Sub(c.began), Err: err})
	return err
}

// newOwner returns 128 random bits as text.
func newOwner() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program if the system has no randomness
	return hex.EncodeToString(b[:])
}

func checkContext(ctx context.Context) error {
	if ctx == nil {
		return &lease.OptionError{Option: "ctx", Value: nil, Problem: "must not be nil"}
	}
	return nil
}

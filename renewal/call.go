package renewal

import (
	"context"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/clockctx"
	"github.com/leasehold-go/leasehold/lease"
)

// callState is what the goroutines that talk to the backend share with the rest.
type callState struct {
	mu        sync.Mutex // guards what follows
	cancel    context.CancelFunc
	over      bool    // the lease has ended: no renewal may be in flight
	flight    *flight // the delete that is under way
	settled   bool    // the delete's outcome is known, or nothing more is to be sent
	outcome   error   // what the backend answered, if settled
	ambiguous bool    // a delete that was sent within the trust ended unknown
}

// flight is a delete that several callers wait for.
type flight struct {
	done chan struct{}
	err  error
}

// call sends one renewal, on a goroutine of its own, and brings the reply to the actor. If the lease has ended meanwhile, a
// success is given back: the record would otherwise stay for a TTL that nobody uses.
func (s *Supervisor) call(sent time.Time, ttl, bound time.Duration) {
	ctx, cancel := clockctx.WithTimeout(s.Values(), s.cfg.Clock, bound)
	if !s.calls.begin(cancel) {
		cancel()
		s.forget()
		return
	}
	grant, err := s.cfg.Backend.Renew(ctx, s.claim(), ttl)
	s.calls.hungUp()
	cancel()
	if s.post(command{kind: answered, back: &reply{sent, ttl, grant, err}}) {
		return
	}
	if err == nil && s.State() == lease.Lost {
		_ = s.delete(s.Values())
	}
	s.forget()
}

// release sends one compare-and-delete. Its bound is its own: a release on a dead context is how locks leak.
func (s *Supervisor) release(ctx context.Context) error {
	ctx, cancel := clockctx.WithTimeout(context.WithoutCancel(ctx), s.cfg.Clock, lease.CallBound(s.cfg.TTL))
	defer cancel()
	return s.cfg.Backend.Release(ctx, s.claim())
}

// land waits for the delete that is under way, if there is one.
func (c *callState) land() {
	c.mu.Lock()
	f := c.flight
	c.mu.Unlock()
	if f != nil {
		<-f.done
	}
}

// begin notes how to hang up the renewal that is about to be sent, unless the lease has ended.
func (c *callState) begin(cancel context.CancelFunc) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel = cancel
	return !c.over
}

// hungUp forgets a call that has come back.
func (c *callState) hungUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel = nil
}

// hangUp ends the renewal in flight, if there is one, and lets no other begin.
func (c *callState) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.cancel != nil {
		c.cancel()
	}
}

package renewal

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasehold-go/leasehold/lease"
)

// Release implements lease.Supervisor: see Handle.Release. The actor ends the lease first, so that nothing is renewed and
// nobody takes the handle for valid when the delete reaches the backend; the delete itself is the caller's own call.
func (s *Supervisor) Release(ctx context.Context) error {
	s.stop(release)
	lost := s.State() == lease.Lost
	if lost && !s.mayHaveRecord() {
		return s.Err()
	}
	err := s.delete(ctx)
	switch {
	case lost:
		return s.Err()
	case errors.Is(err, lease.ErrNotOwner):
		return &lease.LostError{Name: s.Name(), Token: s.Token(), Reason: refusal(err), Err: err}
	}
	return err
}

// Close ends the lease as lost, for the reason Closed, and gives it back. It blocks like Release. The error is that of the
// delete, if its outcome is unknown: whoever worked under the lease is told by the handle.
func (s *Supervisor) Close(ctx context.Context) error {
	s.stop(shut)
	switch {
	case s.State() == lease.Released: // by its holder, who is told the outcome and may try again
		s.calls.land()
		return nil
	case !s.mayHaveRecord():
		return nil
	}
	if err := s.delete(ctx); err != nil && !errors.Is(err, lease.ErrNotOwner) {
		return err
	}
	return nil
}

// mayHaveRecord reports whether the backend may still have the ended lease on record: not if it said that it has not.
func (s *Supervisor) mayHaveRecord() bool {
	return !errors.Is(s.Err(), lease.ErrNotOwner)
}

// delete sends one compare-and-delete, however many call it, and returns what the backend answered. A released handle whose
// delete ended unknown may try again; a lost one sends no second.
func (s *Supervisor) delete(ctx context.Context) error {
	c := &s.calls
	c.mu.Lock()
	if c.settled {
		defer c.mu.Unlock()
		return c.outcome
	}
	if f := c.flight; f != nil {
		c.mu.Unlock()
		<-f.done // bounded as the call below
		return f.err
	}
	f := &flight{done: make(chan struct{})}
	c.flight = f
	c.mu.Unlock()

	trusted := s.cfg.Clock.Now().Before(s.Trust())
	err := s.release(ctx)

	c.mu.Lock()
	defer c.mu.Unlock()
	refused := errors.Is(err, lease.ErrNotOwner)
	switch {
	case refused && c.ambiguous:
		// The earlier delete took effect and its reply was lost. It was sent within the trust, so the lease was ours then.
		err = nil
	case err != nil && !refused:
		c.ambiguous = c.ambiguous || trusted
		err = fmt.Errorf("release %q: %w", s.Name(), err)
	}
	c.settled = err == nil || refused || s.State() == lease.Lost
	c.outcome, c.flight = err, nil
	f.err = err
	close(f.done)
	return err
}

package mutex

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/leasehold-go/leasehold/internal/clockctx"
	"github.com/leasehold-go/leasehold/internal/isnil"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/renewal"
)

// Locker takes locks on one backend. Make one with New and share it. It is safe for concurrent use.
type Locker struct {
	// Fixed after New.
	backend  lease.Backend
	queue    lease.Queuer // nil: waiters poll
	defaults settings
	config   *renewal.Config // of the defaults; calls that override nothing share it
	closing  context.Context // ends when Close is called
	close    context.CancelFunc
	closed   chan struct{} // closed when Close has done its work

	calls sync.WaitGroup // calls of Lock, and what they left to do in the background

	mu       sync.Mutex // guards what follows
	shut     bool
	closeErr error
	held     map[*renewal.Supervisor]struct{}
}

// New returns a Locker on backend. It contacts nobody. The error joins all violations, each a *lease.OptionError: a nil backend,
// options out of bounds, a backend of this process only under RequireShared.
func New(backend lease.Backend, opts ...Option) (*Locker, error) {
	st, err := defaults().with(opts, checkBackend(backend))
	if err == nil {
		err = st.checkReach(backend)
	}
	if err != nil {
		return nil, err
	}
	l := &Locker{
		backend:  backend,
		defaults: st,
		closed:   make(chan struct{}),
		held:     make(map[*renewal.Supervisor]struct{}),
	}
	l.queue, _ = backend.(lease.Queuer)
	l.closing, l.close = context.WithCancel(context.Background())
	l.config = l.supervision(st)
	return l, nil
}

// Close releases everything that the Locker still holds and ends all calls that wait: these return lease.ErrClosed, and so does
// every later call. Handles that were held are lost, for the reason lease.Closed, before their records are deleted.
//
// Close blocks until all of that is done, and what earlier calls left to be given back. All deletes go at once, each with a
// bound of its own: a third of the TTL, at most 5 s. ctx lends its values; its end does not stop them, because
// shutdown is when contexts are dead. The error joins those of the deletes whose outcome is unknown, each naming its lease,
// which then runs out with its TTL. Close may be called again: it waits and returns the same.
func (l *Locker) Close(ctx context.Context) error {
	if ctx == nil {
		ctx = context.Background()
	}
	l.mu.Lock()
	first := !l.shut
	l.shut = true
	held := make([]*renewal.Supervisor, 0, len(l.held))
	for s := range l.held {
		held = append(held, s)
	}
	l.mu.Unlock()
	if !first {
		<-l.closed
		return l.closeErr
	}
	l.close()
	errs := make([]error, len(held))
	var all sync.WaitGroup
	for i, s := range held {
		all.Go(func() { errs[i] = s.Close(ctx) })
	}
	all.Wait()
	l.calls.Wait()
	l.closeErr = errors.Join(errs...)
	close(l.closed)
	return l.closeErr
}

// enter counts a call, unless the Locker is closed.
func (l *Locker) enter() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shut {
		return lease.ErrClosed
	}
	l.calls.Add(1)
	return nil
}

// hold starts the supervision of a grant, unless the Locker was closed meanwhile.
func (l *Locker) hold(ctx context.Context, cfg *renewal.Config, w won) (*lease.Handle, error) {
	s := renewal.New(ctx, cfg, w.req.Name, w.req.Owner, w.grant, w.since)
	l.mu.Lock()
	if l.shut {
		l.mu.Unlock()
		return nil, lease.ErrClosed
	}
	l.held[s] = struct{}{}
	l.mu.Unlock()
	return s.Start(), nil
}

// forget is told that a lease has ended and nothing more is under way for it.
func (l *Locker) forget(s *renewal.Supervisor) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, s)
}

// withdraw gives back, in the background, whatever req's owner may have been given: its lease or its place in the queue.
func (l *Locker) withdraw(ctx context.Context, st *settings, req lease.Request) {
	l.calls.Go(func() {
		ctx, cancel := clockctx.WithTimeout(context.WithoutCancel(ctx), st.clk, lease.CallBound(req.TTL))
		defer cancel()
		// Best effort: if this fails, the lease ends with its TTL and the place in the queue with its owner's silence.
		_ = l.backend.Release(ctx, lease.Claim{Name: req.Name, Owner: req.Owner})
	})
}

// supervision returns how leases taken under st are looked after.
func (l *Locker) supervision(st settings) *renewal.Config {
	return &renewal.Config{
		Backend:  l.backend,
		Clock:    st.clk,
		Observer: st.observer,
		TTL:      st.ttl,
		Every:    st.interval(),
		Strict:   st.strict,
		MaxHold:  st.maxHold,
		Jitter:   st.jitter,
		Forget:   l.forget,
	}
}

func checkBackend(b lease.Backend) error {
	if isnil.Check(b) {
		return &lease.OptionError{Option: "backend", Value: fmt.Sprintf("%T(nil)", b), Problem: "must not be nil"}
	}
	return nil
}

// joinAll joins the errors of several lists that are not nil.
func joinAll(lists ...[]error) error {
	var all []error
	for _, l := range lists {
		all = append(all, l...)
	}
	return errors.Join(all...)
}

package renewal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/leasehold-go/leasehold/internal/alarm"
	"github.com/leasehold-go/leasehold/internal/clockctx"
	"github.com/leasehold-go/leasehold/internal/ctxerr"
	"github.com/leasehold-go/leasehold/lease"
)

// Config says how leases are supervised. It is read only, so many handles may share one.
type Config struct {
	// Backend that granted the lease. Required.
	Backend lease.Backend
	// Clock that everything is judged by. Required.
	Clock clock.Clock
	// Observer is told what happens.
	Observer lease.Observer
	// TTL that renewals ask for. Required.
	TTL time.Duration
	// Every is the time from one renewal to the next; 0 leaves renewing to Handle.Renew.
	Every time.Duration
	// Strict makes any renewal whose outcome is unknown a loss at once.
	Strict bool
	// MaxHold ends the lease so long after the start; 0 is never.
	MaxHold time.Duration
	// Jitter returns a random number from 0 to 1. It is called from many goroutines. Required.
	Jitter func() float64
	// Ended, if not nil, is called once on the actor's goroutine when the lease has ended, before Release returns. It must not block.
	Ended func(*Supervisor)
}

// Supervisor looks after one lease. All exported methods are safe for concurrent use.
type Supervisor struct {
	lease.Control

	// Fixed after New.
	cfg    *Config
	owner  string
	base   context.Context // values for calls, no cancellation
	mail   chan command
	replyc chan reply
	exited chan struct{} // closed when run has returned the lease to nobody: it is Released or Lost

	// Owned by run.
	plan    plan
	bell    alarm.Alarm
	asks    []command // renewals asked for and not yet sent
	serving []command // renewals that wait for the call in flight
	hangUp  context.CancelFunc
	lastErr error // of the last renewal that was not confirmed; nil once one is

	giveBack giveBack
}

// command is a letter to the actor.
type command struct {
	kind  kind
	ttl   time.Duration // for askRenewal; 0: as before
	reply chan<- error  // for askRenewal; has room for the answer
}

type kind uint8

const (
	look       kind = iota // at the clock
	askRenewal             // and answer
	release                // end as Released
	shut                   // end as Lost, Closed
)

// reply is what a call brought back.
type reply struct {
	sent  time.Time
	ttl   time.Duration // asked for
	grant lease.Grant
	err   error
}

// New returns a supervisor for a lease that owner was granted. since is an instant before the lease began to run on the backend.
// The handle's context will be a child of ctx; nothing else depends on it. Start must be called once.
func New(ctx context.Context, cfg *Config, name, owner string, grant lease.Grant, since time.Time) *Supervisor {
	s := &Supervisor{
		cfg:    cfg,
		owner:  owner,
		base:   context.WithoutCancel(ctx),
		mail:   make(chan command),
		replyc: make(chan reply),
		exited: make(chan struct{}),
		bell:   alarm.New(cfg.Clock),
	}
	s.plan = plan{ttl: cfg.TTL, every: cfg.Every}.confirmed(since, cfg.TTL, grant.TTL, cfg.Jitter())
	if cfg.MaxHold > 0 {
		s.plan.maxHold = cfg.Clock.Now().Add(cfg.MaxHold)
	}
	s.Init(ctx, cfg.Clock, s, name, grant, s.plan.trust)
	return s
}

// Start begins the supervision and returns the handle. The first timer is armed before anybody has the handle: a test that
// moves a fake clock next moves it past a real timer.
func (s *Supervisor) Start() *lease.Handle {
	h := s.Handle()
	if !s.act() {
		go s.run()
	}
	return h
}

// Renew implements lease.Supervisor: see Handle.Renew.
func (s *Supervisor) Renew(ctx context.Context, ttl time.Duration) error {
	answer := make(chan error, 1)
	select {
	case s.mail <- command{kind: askRenewal, ttl: ttl, reply: answer}:
	case <-s.exited:
		return s.Err()
	case <-ctx.Done():
		return fmt.Errorf("renew %q: %w", s.Name(), ctxerr.Of(ctx))
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("renew %q: %w", s.Name(), ctxerr.Of(ctx))
	}
}

// Check implements lease.Supervisor: the actor looks at the clock, if it is not at it already.
func (s *Supervisor) Check() {
	select {
	case s.mail <- command{kind: look}:
	default:
	}
}

// run is the actor. It owns the lease from the grant to the end.
func (s *Supervisor) run() {
	for {
		var ended bool
		select {
		case <-s.bell.C():
		case c := <-s.mail:
			ended = s.obey(c)
		case r := <-s.replyc:
			ended = s.take(r)
		}
		if ended || s.act() {
			return
		}
	}
}

// act does what is due and sets the bell for what is next. It reports whether the lease ended by it.
func (s *Supervisor) act() bool {
	for {
		now := s.cfg.Clock.Now()
		s.plan.asked, s.plan.abandoned = len(s.asks) > 0, s.Abandoned()
		act := s.plan.next(now)
		switch act.verb {
		case lose:
			s.end(lease.Lost, act.reason, s.lastErr)
			return true
		case renew:
			s.send(now)
		default:
			s.bell.Set(act.until.Sub(now))
			return false
		}
	}
}

// obey does what a letter asks for and reports whether the lease ended by it.
func (s *Supervisor) obey(c command) bool {
	switch c.kind {
	case askRenewal:
		s.asks = append(s.asks, c)
		return false
	case look:
		return false
	}
	// A lease whose trust is over is lost, even if nobody has noticed before its release.
	if act := s.plan.next(s.cfg.Clock.Now()); act.verb == lose {
		s.end(lease.Lost, act.reason, s.lastErr)
	} else if c.kind == release {
		s.end(lease.Released, 0, nil)
	} else {
		s.end(lease.Lost, lease.Closed, nil)
	}
	return true
}

// send starts one call that serves everybody who asked for the same length.
func (s *Supervisor) send(now time.Time) {
	ttl := s.plan.ttl
	if len(s.asks) > 0 {
		first := s.asks[0].ttl
		n := 1
		for n < len(s.asks) && s.asks[n].ttl == first {
			n++
		}
		s.serving, s.asks = s.asks[:n:n], s.asks[n:]
		if first != 0 {
			ttl = first
		}
	}
	s.plan = s.plan.sending(now, ttl)
	s.Extend(s.plan.trust, time.Time{})
	ctx, cancel := clockctx.WithTimeout(s.base, s.cfg.Clock, s.plan.callBound(now))
	s.hangUp = cancel
	go s.call(ctx, now, ttl)
}

// call asks the backend on a goroutine of its own and brings the reply to the actor. If that has ended the lease meanwhile, a
// success is given back: the record would otherwise stay for a TTL that nobody uses.
func (s *Supervisor) call(ctx context.Context, sent time.Time, ttl time.Duration) {
	grant, err := s.cfg.Backend.Renew(ctx, s.claim(), ttl)
	select {
	case s.replyc <- reply{sent, ttl, grant, err}:
	case <-s.exited:
		if err == nil && s.State() == lease.Lost {
			_ = s.delete(s.base)
		}
	}
}

// take acts on a reply and reports whether the lease ended by it.
func (s *Supervisor) take(r reply) bool {
	s.hangUp()
	s.hangUp = nil
	now := s.cfg.Clock.Now()
	late := s.plan.next(now)
	switch {
	case r.err == nil:
		next := s.plan.confirmed(r.sent, r.ttl, r.grant.TTL, s.cfg.Jitter())
		if late.verb != lose {
			late = next.next(now) // a grant that took longer than it runs
		}
		if late.verb == lose {
			s.end(lease.Lost, late.reason, s.lastErr)
			_ = s.delete(s.base)
			return true
		}
		s.confirm(now, next, r)
	case errors.Is(r.err, lease.ErrNotOwner):
		reason := lease.Missing
		if errors.Is(r.err, lease.ErrTaken) {
			reason = lease.Taken
		}
		s.end(lease.Lost, reason, r.err)
		return true
	default:
		s.lastErr = r.err
		if s.cfg.Strict {
			s.end(lease.Lost, lease.Expired, r.err)
			return true
		}
		s.doubt(now, r)
	}
	return false
}

// confirm records a renewal that the backend confirmed.
func (s *Supervisor) confirm(now time.Time, next plan, r reply) {
	e := s.event(now)
	e.Margin, e.Remaining = e.Remaining, next.trust.Sub(now)
	recovered := s.plan.failing
	s.plan, s.lastErr = next, nil
	s.Extend(next.trust, r.grant.ExpiresAt)
	s.answer(nil)
	if recovered {
		lease.Notify(s.cfg.Observer.Recovered, e)
	}
	lease.Notify(s.cfg.Observer.Renewed, e)
}

// doubt records a renewal whose outcome is unknown.
func (s *Supervisor) doubt(now time.Time, r reply) {
	first := !s.plan.failing
	s.plan = s.plan.unconfirmed(now, s.cfg.Jitter())
	s.answer(fmt.Errorf("renew %q: %w", s.Name(), r.err))
	if first {
		e := s.event(now)
		e.Err = r.err
		lease.Notify(s.cfg.Observer.RenewFailing, e)
	}
}

// end ends the lease: state and signals first, then those who wait, then observers. It is the actor's last act but for giving
// back a late success.
func (s *Supervisor) end(state lease.State, reason lease.Reason, cause error) {
	err := lease.ErrReleased
	if state == lease.Lost {
		err = &lease.LostError{Name: s.Name(), Token: s.Token(), Reason: reason, Err: cause}
	}
	s.End(state, err)
	s.bell.Stop()
	if s.hangUp != nil {
		s.hangUp()
	}
	if s.cfg.Ended != nil {
		s.cfg.Ended(s)
	}
	close(s.exited)
	s.answer(err)
	s.serving, s.asks = s.asks, nil
	s.answer(err)
	if reason == lease.Abandoned {
		slog.Warn("leasehold: a handle was dropped without release; its lease runs out", "name", s.Name(), "token", s.Token().String())
	}
	e := s.event(s.cfg.Clock.Now())
	if state == lease.Released {
		lease.Notify(s.cfg.Observer.Released, e)
		return
	}
	e.Reason, e.Err = reason, err
	lease.Notify(s.cfg.Observer.Lost, e)
}

// answer tells those who wait for the call in flight.
func (s *Supervisor) answer(err error) {
	for _, c := range s.serving {
		c.reply <- err
	}
	s.serving = nil
}

func (s *Supervisor) claim() lease.Claim {
	return lease.Claim{Name: s.Name(), Owner: s.owner, Token: s.Token()}
}

func (s *Supervisor) event(now time.Time) lease.Event {
	e := lease.Event{Name: s.Name(), Token: s.Token(), At: now}
	if s.State() == lease.Held {
		e.Remaining = s.plan.trust.Sub(now)
	}
	return e
}

// stop makes the actor end the lease, unless it has ended, and waits until it has. The actor never waits for anything that can
// hang.
func (s *Supervisor) stop(k kind) {
	select {
	case s.mail <- command{kind: k}:
		<-s.exited
	case <-s.exited:
	}
}

// giveBack is the state of the compare-and-delete that follows the end of a lease.
type giveBack struct {
	mu        sync.Mutex // guards what follows
	flight    *flight    // the delete that is under way
	settled   bool       // the outcome is known, or nothing more is to be sent
	outcome   error      // what the backend answered, if settled
	ambiguous bool       // a delete that was sent within the trust ended unknown
}

// flight is a delete that several callers wait for.
type flight struct {
	done chan struct{}
	err  error
}

package renewal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/benbjohnson/clock"

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
	// Forget, if not nil, is called once, when the lease ends and no renewal is in flight or to be given back any more: from then
	// on only Release and Close send anything for it. It must not block.
	Forget func(*Supervisor)
}

// Supervisor looks after one lease. All exported methods are safe for concurrent use.
//
// Its actor blocks on one channel, everything deep runs on other goroutines, and what it keeps is small: a held lease is to
// cost one goroutine with the smallest stack there is, and 4 KiB in all.
type Supervisor struct {
	lease.Control

	// Fixed after New.
	cfg   *Config
	owner string
	mail  chan command

	// Owned by run.
	plan    plan
	bell    *clock.Timer // puts a letter into the mail when there is something to do
	asks    []command    // renewals asked for and not yet sent
	serving []command    // renewals that wait for the call in flight
	lastErr error        // of the last renewal that was not confirmed; nil once one is

	calls callState
}

// command is a letter to the actor.
type command struct {
	kind  kind
	ttl   time.Duration // for askRenewal; 0: as before
	reply chan<- error  // for askRenewal; has room for the answer
	back  *reply        // for answered
}

type kind uint8

const (
	look       kind = iota // at the clock
	askRenewal             // and answer
	answered               // a call came back
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
		cfg:   cfg,
		owner: owner,
		mail:  make(chan command),
	}
	s.plan = plan{ttl: cfg.TTL, every: cfg.Every}
	s.plan.confirmed(since, cfg.TTL, grant.TTL, cfg.Jitter())
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
	if !s.post(command{kind: askRenewal, ttl: ttl, reply: answer}) {
		return s.Err()
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
	for !s.obey(<-s.mail) && !s.act() {
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
			s.ring(act.until.Sub(now))
			return false
		}
	}
}

// longest is the furthest ahead that the bell is set: a lease of a century needs no timer of a century.
const longest = 24 * time.Hour

// ring sets the bell to d from now, which is positive.
func (s *Supervisor) ring(d time.Duration) {
	d = min(d, longest)
	if s.bell == nil {
		s.bell = s.cfg.Clock.AfterFunc(d, func() { s.post(command{kind: look}) })
		return
	}
	s.bell.Reset(d)
}

// post puts a letter into the mail and reports whether the actor took it; it does not once the lease has ended. The
// actor never waits for anything but mail, so this takes no time.
func (s *Supervisor) post(c command) bool {
	select {
	case s.mail <- c:
		return true
	case <-s.Ended():
		return false
	}
}

// obey does what a letter asks for and reports whether the lease ended by it.
func (s *Supervisor) obey(c command) bool {
	switch c.kind {
	case askRenewal:
		s.asks = append(s.asks, c)
	case answered:
		return s.take(c.back)
	case release, shut:
		s.finish(c.kind)
		return true
	}
	return false
}

// finish ends the lease because somebody asked for it. A lease whose trust is over is lost even so, though nobody has noticed.
func (s *Supervisor) finish(k kind) {
	act := s.plan.next(s.cfg.Clock.Now())
	switch {
	case act.verb == lose:
		s.end(lease.Lost, act.reason, s.lastErr)
	case k == release:
		s.end(lease.Released, 0, nil)
	default:
		s.end(lease.Lost, lease.Closed, nil)
	}
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
	s.plan.busy = true
	go s.call(now, ttl, s.plan.callBound(now))
}

// take acts on a reply and reports whether the lease ended by it.
func (s *Supervisor) take(r *reply) bool {
	if r.err == nil {
		return s.confirm(r)
	}
	s.plan.busy = false
	switch {
	case errors.Is(r.err, lease.ErrNotOwner):
		s.end(lease.Lost, refusal(r.err), r.err)
		return true
	case s.cfg.Strict:
		s.end(lease.Lost, lease.Expired, r.err)
		return true
	}
	s.doubt(r)
	return false
}

// confirm records a renewal that the backend confirmed, if it is not too late: what comes after the end of trust, or took longer
// than it was granted for, is given back.
func (s *Supervisor) confirm(r *reply) bool {
	now := s.cfg.Clock.Now()
	left, failing := s.plan.trust.Sub(now), s.plan.failing
	act := s.plan.next(now)
	if act.verb != lose {
		s.plan.confirmed(r.sent, r.ttl, r.grant.TTL, s.cfg.Jitter())
		act = s.plan.next(now)
	}
	if act.verb == lose {
		s.plan.busy = true // until its success has been given back
		s.end(lease.Lost, act.reason, s.lastErr)
		_ = s.delete(s.Values())
		s.forget()
		return true
	}
	s.lastErr = nil
	s.Extend(s.plan.trust, r.grant.ExpiresAt)
	s.answer(nil)
	if o := &s.cfg.Observer; o.Renewed != nil || o.Recovered != nil {
		s.tellConfirmed(now, left, failing)
	}
	return false
}

// tellConfirmed is apart from confirm because an Event is large for an actor's small stack.
func (s *Supervisor) tellConfirmed(now time.Time, margin time.Duration, recovered bool) {
	e := s.event(now)
	e.Margin = margin
	if recovered {
		lease.Notify(s.cfg.Observer.Recovered, e)
	}
	lease.Notify(s.cfg.Observer.Renewed, e)
}

// doubt records a renewal whose outcome is unknown.
func (s *Supervisor) doubt(r *reply) {
	now := s.cfg.Clock.Now()
	first := !s.plan.failing
	s.plan.unconfirmed(now, s.cfg.Jitter())
	s.lastErr = r.err
	s.answer(fmt.Errorf("renew %q: %w", s.Name(), r.err))
	if first {
		e := s.event(now)
		e.Err = r.err
		lease.Notify(s.cfg.Observer.RenewFailing, e)
	}
}

// refusal returns the reason for a loss that the backend told of.
func refusal(err error) lease.Reason {
	if errors.Is(err, lease.ErrTaken) {
		return lease.Taken
	}
	return lease.Missing
}

// end ends the lease: state and signals, then those who wait, then observers. It is the actor's last act but for giving
// back a late success.
func (s *Supervisor) end(state lease.State, reason lease.Reason, cause error) {
	err := lease.ErrReleased
	if state == lease.Lost {
		err = &lease.LostError{Name: s.Name(), Token: s.Token(), Reason: reason, Err: cause}
	}
	// What must be gone when Release returns goes before the end: it waits for nothing else.
	if s.bell != nil {
		s.bell.Stop()
	}
	s.calls.hangUp()
	if !s.plan.busy { // otherwise the call does it
		s.forget()
	}
	s.End(state, err)
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

// forget lets the Locker forget the lease.
func (s *Supervisor) forget() {
	if s.cfg.Forget != nil {
		s.cfg.Forget(s)
	}
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

// stop makes the actor end the lease, unless it has ended, and waits until it has.
func (s *Supervisor) stop(k kind) {
	if s.post(command{kind: k}) {
		<-s.Ended()
	}
}

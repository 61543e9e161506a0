package mutex

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/renewal"
)

// DefaultTTL is the length of a lease unless WithTTL says otherwise.
const DefaultTTL = 30 * time.Second

// Option sets how locks are taken and kept. Options given to New are defaults; options given to a single call override them for
// that call. All are validated together before anything is sent; each violation is a *lease.OptionError of the joined result.
type Option func(*settings)

// settings is what options fill in.
type settings struct {
	ttl           time.Duration
	wait          time.Duration // negative: until ctx ends
	every         time.Duration // 0: a third of ttl
	noRenewal     bool
	strict        bool
	maxHold       time.Duration // 0: none
	label         string
	clk           clock.Clock
	observer      lease.Observer
	onWait        func(Waiting)
	jitter        func() float64
	requireShared bool

	// What this list of options said, to find contradictions; reset for each list.
	saidEvery, saidNoRenewal bool
	problems                 []error // found while the options were applied
}

// problem keeps a violation until all options have been read.
func (s *settings) problem(option string, value any, format string, args ...any) {
	s.problems = append(s.problems, &lease.OptionError{Option: option, Value: value, Problem: fmt.Sprintf(format, args...)})
}

// WithTTL sets how long a lease runs unless it is renewed, from lease.MinTTL to lease.MaxTTL; default DefaultTTL. It is also the
// longest that a name stays taken after its holder died. A backend may cut it to whole milliseconds.
func WithTTL(ttl time.Duration) Option { return func(s *settings) { s.ttl = ttl } }

// WithWait bounds how long Lock and Do wait for their turn; then the error matches lease.ErrHeld and context.DeadlineExceeded. 0 makes
// one attempt. Without it they wait until ctx ends. TryLock never waits.
func WithWait(d time.Duration) Option {
	return func(s *settings) {
		if d < 0 {
			s.problem("WithWait", d, "must not be negative")
		}
		s.wait = d
	}
}

// WithRenewEvery sets the time from one renewal to the next, from 1 ms to half the TTL; default a third of the TTL. Renewals come
// up to 10 % early, never late.
func WithRenewEvery(d time.Duration) Option {
	return func(s *settings) {
		if d < renewal.MinEvery {
			s.problem("WithRenewEvery", d, "must be at least %v", renewal.MinEvery)
		}
		s.every, s.noRenewal, s.saidEvery = d, false, true
	}
}

// WithoutRenewal leaves renewing to Handle.Renew: the lease is lost when its TTL, less the margin, is over.
func WithoutRenewal() Option {
	return func(s *settings) { s.every, s.noRenewal, s.saidNoRenewal = 0, true, true }
}

// WithStrictRenewal makes any renewal whose outcome is unknown a loss at once, instead of trying again while the lease runs.
func WithStrictRenewal() Option { return func(s *settings) { s.strict = true } }

// WithMaxHold ends a lease as lost, for the reason lease.MaxHold, so long after its grant, at least 1 ms. It is a fuse against
// holders that hang.
func WithMaxHold(d time.Duration) Option {
	return func(s *settings) {
		if d < time.Millisecond {
			s.problem("WithMaxHold", d, "must be at least %v", time.Millisecond)
		}
		s.maxHold = d
	}
}

// WithLabel sets what others are told about the holder, up to lease.MaxLabelBytes: a host, a program, a job. Default empty.
func WithLabel(label string) Option { return func(s *settings) { s.label = label } }

// WithClock sets the clock that everything is judged by; default the real one.
func WithClock(clk clock.Clock) Option {
	return func(s *settings) {
		if clk == nil {
			s.problem("WithClock", nil, "must not be nil")
			return
		}
		s.clk = clk
	}
}

// WithObserver sets who is told what happens. Its hooks must not block.
func WithObserver(o lease.Observer) Option { return func(s *settings) { s.observer = o } }

// WithOnWait sets a function that is called, in the waiting goroutine, each time a waiting call is told that the name is
// held. It must not block.
func WithOnWait(f func(Waiting)) Option { return func(s *settings) { s.onWait = f } }

// WithRand sets the source of randomness that spreads polls and renewals: f returns a number from 0 up to 1 and is called
// from many goroutines. It is for tests that must repeat; owners' ids never come from it.
func WithRand(f func() float64) Option {
	return func(s *settings) {
		if f == nil {
			s.problem("WithRand", nil, "must not be nil")
			return
		}
		s.jitter = f
	}
}

// RequireShared makes New refuse a backend that does not reach beyond this process.
func RequireShared() Option { return func(s *settings) { s.requireShared = true } }

// Waiting is what a function set by WithOnWait is told.
type Waiting struct {
	// Name as the caller wrote it.
	Name string
	// Attempt counts from 1 how often the call was told that the name is held.
	Attempt int
	// Waited is the time since the call began.
	Waited time.Duration
	// Holder is what the backend tells of who holds the name.
	Holder lease.Holder
}

func defaults() settings {
	return settings{ttl: DefaultTTL, wait: -1, clk: clock.New(), jitter: rand.Float64}
}

// with returns s changed by opts, or all that is wrong with the result.
func (s settings) with(opts []Option, more ...error) (settings, error) {
	s.saidEvery, s.saidNoRenewal, s.problems = false, false, nil
	for _, opt := range opts {
		if opt == nil {
			s.problem("option", nil, "must not be nil")
			continue
		}
		opt(&s)
	}
	return s, s.validate(more)
}

// validate reads the settings as a whole.
func (s *settings) validate(more []error) error {
	if s.saidEvery && s.saidNoRenewal {
		s.problem("WithoutRenewal", "WithRenewEvery", "they contradict each other")
	}
	if s.every > s.ttl/2 {
		s.problem("WithRenewEvery", s.every, "must be at most half the TTL, %v", s.ttl/2)
	}
	return joinAll(append(more, lease.CheckTTL("WithTTL", s.ttl), lease.CheckLabel(s.label)), s.problems)
}

// checkReach refuses a backend of this process only, if that was asked for.
func (s *settings) checkReach(b lease.Backend) error {
	if s.requireShared && b.Info().ProcessLocal {
		return &lease.OptionError{Option: "RequireShared", Value: b.Info().Name, Problem: "the backend excludes nobody outside this process"}
	}
	return nil
}

// interval returns the renewal interval that the supervisor takes: 0 for none.
func (s *settings) interval() time.Duration {
	switch {
	case s.noRenewal:
		return 0
	case s.every == 0:
		return s.ttl / 3
	}
	return s.every
}

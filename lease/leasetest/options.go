package leasetest

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/lease"
)

// Option gives the kit what it cannot do through the contract alone.
type Option func(*settings)

type settings struct {
	bubble  bool
	ttl     time.Duration
	advance func(d time.Duration)
	remove  func(t testing.TB, b lease.Backend, name string)
	forget  func(t testing.TB, b lease.Backend)
	second  func(t testing.TB, first lease.Backend) lease.Backend
}

func newSettings(opts []Option) settings {
	var s settings
	for _, opt := range opts {
		opt(&s)
	}
	if s.ttl == 0 {
		s.ttl = 300 * time.Millisecond
		if s.exact() {
			s.ttl = 10 * time.Second
		}
	}
	return s
}

// exact reports whether no time passes unless a case says so.
func (s settings) exact() bool { return s.bubble || s.advance != nil }

// WithBubble runs each case in a testing/synctest bubble.
func WithBubble() Option { return func(s *settings) { s.bubble = true } }

// WithAdvance lets the kit move the backend's clock by calling advance, as clock.Mock's Add does, instead of sleeping.
// advance is called from one goroutine at a time, and may be called with 0.
func WithAdvance(advance func(d time.Duration)) Option {
	return func(s *settings) { s.advance = advance }
}

// WithTTL sets the length of the leases that a case waits out. The default is 300 ms when the kit sleeps. A store with coarse
// time needs more. It panics if ttl is below ten times lease.MinTTL, which leaves no room for any slack.
func WithTTL(ttl time.Duration) Option {
	if ttl < 10*lease.MinTTL {
		panic("leasetest: WithTTL needs at least " + (10 * lease.MinTTL).String())
	}
	return func(s *settings) { s.ttl = ttl }
}

// WithDelete lets the kit delete the record of the lease on name, as a third party with access to b's store would. What the store
// keeps beside the record stays: the last token, the queue.
func WithDelete(remove func(t testing.TB, b lease.Backend, name string)) Option {
	return func(s *settings) { s.remove = remove }
}

// WithForget lets the kit make b's store forget everything, as FLUSHALL or a restart without persistence does.
func WithForget(forget func(t testing.TB, b lease.Backend)) Option {
	return func(s *settings) { s.forget = forget }
}

// WithSecond lets the kit make another backend over the store of the first, as another process would have.
func WithSecond(second func(t testing.TB, first lease.Backend) lease.Backend) Option {
	return func(s *settings) { s.second = second }
}

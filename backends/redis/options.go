package redis

import (
	"errors"
	"strings"

	"github.com/benbjohnson/clock"
	goredis "github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/isnil"
	"github.com/leasehold-go/leasehold/lease"
)

// Option changes what New makes.
type Option func(*settings)

type settings struct {
	prefix  string
	keyFunc lease.KeyFunc
	clk     clock.Clock
}

// WithPrefix sets what every key and channel of the backend begins with; the default is "leasehold:". All processes that share
// leases need the same. It must not contain braces, which mark the part of a key that decides its slot in a cluster.
func WithPrefix(prefix string) Option { return func(s *settings) { s.prefix = prefix } }

// WithKeyFunc sets how the name of a lease becomes the part of its keys that stands for it; the default is the name itself.
// Any result will do: what has a meaning in keys is escaped afterwards.
func WithKeyFunc(f lease.KeyFunc) Option { return func(s *settings) { s.keyFunc = f } }

// WithClock sets the clock by which the backend polls and bounds its requests; the default is the machine's.
func WithClock(clk clock.Clock) Option { return func(s *settings) { s.clk = clk } }

func defaults() settings {
	return settings{
		prefix:  "leasehold:",
		keyFunc: func(name string) string { return name },
		clk:     clock.New(),
	}
}

// validate returns all violations joined, each a *lease.OptionError.
func (s *settings) validate(client goredis.UniversalClient) error {
	var violations []error
	report := func(option string, value any, problem string) {
		violations = append(violations, &lease.OptionError{Option: option, Value: value, Problem: problem})
	}
	switch _, ring := client.(*goredis.Ring); {
	case isnil.Check(client):
		report("client", nil, "must not be nil")
	case ring:
		report("client", "*redis.Ring", "must be a standalone, Sentinel or Cluster client: a Ring moves names to another server when one is down, "+
			"while the first may still hold their leases")
	}
	if strings.ContainsAny(s.prefix, "{}") {
		report("WithPrefix", s.prefix, "must not contain braces")
	}
	if s.keyFunc == nil {
		report("WithKeyFunc", nil, "must not be nil")
	}
	if isnil.Check(s.clk) {
		report("WithClock", nil, "must not be nil")
	}
	return errors.Join(violations...)
}

package leasetest

import (
	"testing"
	"testing/synctest"

	"github.com/leasehold-go/leasehold/lease"
)

// Run checks the backends that newBackend makes against the contract of lease.Backend and, if they are one, of lease.Queuer:
// each case is a subtest with a backend of its own. It blocks until all have ended. newBackend may leave clean-up to
// t.Cleanup; with WithBubble it is called within the bubble.
func Run(t *testing.T, newBackend func(t *testing.T) lease.Backend, opts ...Option) {
	t.Helper()
	s := newSettings(opts)
	for _, c := range allCases() {
		t.Run(c.name, func(t *testing.T) {
			if c.needs.options(s) != "" {
				t.Skip(c.needs.options(s))
			}
			if !s.bubble {
				s.run(t, c, newBackend(t))
				return
			}
			synctest.Test(t, func(t *testing.T) { s.run(t, c, newBackend(t)) })
		})
	}
}

// run runs one case. It takes a testing.TB so that the kit's own tests can watch cases fail.
func (s settings) run(t testing.TB, c testCase, b lease.Backend) {
	t.Helper()
	if _, ok := b.(lease.Queuer); !ok && c.needs.has(queue) {
		t.Skip("needs a lease.Queuer: whoever waits polls this backend")
	}
	defer func() {
		if t.Failed() {
			t.Logf("the rule: %s", c.explanation)
		}
	}()
	c.run(newKit(t, s, b))
}

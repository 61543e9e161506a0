package lease_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// supervised is a Control whose supervisor does nothing but count.
type supervised struct {
	lease.Control
	renewed, released, checked atomic.Int32
}

func (s *supervised) Renew(context.Context, time.Duration) error { s.renewed.Add(1); return s.Err() }
func (s *supervised) Release(context.Context) error              { s.released.Add(1); return nil }
func (s *supervised) Check()                                     { s.checked.Add(1) }

const length = 10 * time.Second

// newHandle returns a lease that is held and trusted for length on clk.
func newHandle(ctx context.Context, clk clock.Clock) (*supervised, *lease.Handle) {
	s := &supervised{}
	now := clk.Now()
	s.Init(ctx, clk, s, "x", lease.Grant{Token: 7, TTL: length, ExpiresAt: now.Add(length)}, now.Add(length))
	return s, s.Handle()
}

func lost(reason lease.Reason) error {
	return &lease.LostError{Name: "x", Token: 7, Reason: reason}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

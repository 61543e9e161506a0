package mutex

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/internal/alarm"
	"github.com/leasehold-go/leasehold/internal/clockctx"
	"github.com/leasehold-go/leasehold/lease"
)

// How a waiter spaces its attempts when the backend has no queue, or does not answer.
const (
	// MinPollGap is the least time between two attempts of one waiter.
	MinPollGap = 10 * time.Millisecond
	// MaxPollGap is the longest: a name that becomes free is noticed that late at worst.
	MaxPollGap = time.Second

	firstPollGap = 100 * time.Millisecond
)

// pollGap returns how long to wait after attempt n, counted from 0: at random between MinPollGap and a bound that doubles from
// firstPollGap to MaxPollGap ("full jitter", AWS Architecture Blog, Exponential Backoff And Jitter), so that waiters
// which started together do not stay together. If the holder's lease runs out before that, the attempt is made then, spread over
// firstPollGap's tenth. jitter is from 0 to 1.
func pollGap(n int, remaining time.Duration, jitter float64) time.Duration {
	bound := min(firstPollGap<<min(n, 10), MaxPollGap)
	gap := MinPollGap + time.Duration(jitter*float64(bound-MinPollGap))
	if remaining > 0 && remaining < gap {
		gap = max(MinPollGap, remaining+time.Duration(jitter*float64(firstPollGap/10)))
	}
	return gap
}

// pause waits between two attempts and reports whether there is time for another.
func (c *call) pause(ctx context.Context, n int) bool {
	var remaining time.Duration
	if c.holder != nil {
		remaining = c.holder.Remaining
	}
	bell := alarm.New(c.st.clk)
	bell.Set(pollGap(n, remaining, c.st.jitter()))
	defer bell.Stop()
	select {
	case <-bell.C():
		return true
	case <-ctx.Done():
		return false
	}
}

// waitContext returns the context that bounds the call: it ends with ctx, with the time of WithWait, and with the Locker.
func (c *call) waitContext(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	unlink := context.AfterFunc(c.l.closing, func() { cancel(lease.ErrClosed) })
	end := func() {}
	if !c.try && c.st.wait > 0 {
		ctx, end = clockctx.WithTimeout(ctx, c.st.clk, c.st.wait)
	}
	return ctx, func() {
		end()
		unlink()
		cancel(nil)
	}
}

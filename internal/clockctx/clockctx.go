// Package clockctx gives contexts that time out on an injected clock.
//
// clock.Mock has such contexts too, but they read their error without a lock and start a goroutine for each parent.
package clockctx

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
)

// WithTimeout returns a child of parent that ends after d on clk, with context.DeadlineExceeded. On the real clock it is
// context.WithTimeout, so that the deadline is known to whoever does I/O. On another clock the child shows no deadline of its
// own, since it would mean nothing outside that clock.
func WithTimeout(parent context.Context, clk clock.Clock, d time.Duration) (context.Context, context.CancelFunc) {
	if IsReal(clk) {
		return context.WithTimeout(parent, d)
	}
	if d <= 0 {
		ctx, cancel := context.WithDeadline(parent, time.Unix(0, 0))
		return ctx, cancel
	}
	c := &timed{Context: parent, done: make(chan struct{})}
	c.mu.Lock() // until both are set: they may call end at once
	defer c.mu.Unlock()
	c.timer = clk.AfterFunc(d, func() { c.end(context.DeadlineExceeded) })
	c.unlink = context.AfterFunc(parent, func() { c.end(parent.Err()) })
	return c, func() { c.end(context.Canceled) }
}

// IsReal reports whether clk is the real clock and nothing around it.
func IsReal(clk clock.Clock) bool { return reflect.TypeOf(clk) == realType }

var realType = reflect.TypeOf(clock.New())

// timed is a context that ends on a clock of its own.
type timed struct {
	context.Context // parent: values and its deadline
	done            chan struct{}
	timer           *clock.Timer
	unlink          func() bool

	mu  sync.Mutex
	err error
}

func (c *timed) Done() <-chan struct{} { return c.done }

func (c *timed) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *timed) end(err error) {
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = err
		close(c.done)
	}
	c.mu.Unlock()
	if first {
		c.timer.Stop()
		c.unlink()
	}
}

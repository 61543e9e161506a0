package props

import (
	"fmt"
	"reflect"
	"sync"
	"time"
	"unsafe"

	"github.com/benbjohnson/clock"
)

// simClock is a clock.Mock that is moved by hand and runs at its own rate.
type simClock struct {
	*clock.Mock
	base time.Time // what it shows at true time 0
	ppm  int64     // how much faster than true time it runs, in millionths
}

func newSimClock(base time.Time, ppm int64) *simClock {
	c := &simClock{Mock: clock.NewMock(), base: base, ppm: ppm}
	c.show(0)
	return c
}

// reading is what c shows at true time t.
func (c *simClock) reading(t time.Duration) time.Time { return c.base.Add(c.elapsed(t)) }

func (c *simClock) elapsed(t time.Duration) time.Duration {
	return t + time.Duration(floorDiv(int64(t)*c.ppm, 1_000_000))
}

// trueAt is the first true time at which c shows at least l.
func (c *simClock) trueAt(l time.Time) time.Duration {
	d := l.Sub(c.base)
	t := d - time.Duration(floorDiv(int64(d)*c.ppm, 1_000_000+c.ppm))
	for c.elapsed(t) < d {
		t++
	}
	for c.elapsed(t-1) >= d {
		t--
	}
	return t
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

// show moves c to true time t. No timer fires.
func (c *simClock) show(t time.Duration) {
	m := c.lock()
	defer m.mu.Unlock()
	m.now = c.reading(t)
}

// next is the true time of the earliest timer.
func (c *simClock) next() (time.Duration, bool) {
	m := c.lock()
	defer m.mu.Unlock()
	if len(m.timers) == 0 {
		return 0, false
	}
	first := asTimer(m.timers[0]).next
	for _, t := range m.timers[1:] {
		if n := asTimer(t).next; n.Before(first) {
			first = n
		}
	}
	return c.trueAt(first), true
}

// pending is the number of timers that are set.
func (c *simClock) pending() int {
	m := c.lock()
	defer m.mu.Unlock()
	return len(m.timers)
}

// dueTimer is a timer that has run out and was taken off its clock, and not fired yet. Left on the clock, it would be fired by the next call of
// Mock.Timer, on the goroutine of whoever calls that, which would then sleep in the bubble.
type dueTimer struct {
	clk   *simClock
	timer clockTimer
}

// due takes off all timers that have run out, in their order.
func (c *simClock) due() []dueTimer {
	m := c.lock()
	defer m.mu.Unlock()
	var out []dueTimer
	kept := m.timers[:0]
	for _, t := range m.timers {
		if asTimer(t).next.After(m.now) {
			kept = append(kept, t)
			continue
		}
		i := len(out)
		for i > 0 && asTimer(t).next.Before(asTimer(out[i-1].timer).next) {
			i--
		}
		out = append(out, dueTimer{})
		copy(out[i+1:], out[i:])
		out[i] = dueTimer{c, t}
	}
	clear(m.timers[len(kept):])
	m.timers = kept
	return out
}

// fire lets the timer go off at its clock's present, unless it was stopped or set again since it was taken off.
func (d dueTimer) fire() {
	m := d.clk.lock()
	t := asTimer(d.timer)
	for _, other := range m.timers {
		if asTimer(other) == t { // stopped, then set again
			m.mu.Unlock()
			return
		}
	}
	switch {
	case t.stopped:
		m.mu.Unlock()
	case t.next.After(m.now): // set again: back on the clock
		m.timers = append(m.timers, d.timer)
		m.mu.Unlock()
	case t.fn != nil:
		t.stopped = true
		m.mu.Unlock()
		go t.fn()
	default:
		t.stopped = true
		m.mu.Unlock()
		select {
		case t.c <- m.now:
		default:
			panic("props: a tick was left unread and would block clock.Mock for ever")
		}
	}
}

// The layout of clock.Mock and clock.Timer, which checkLayout compares.
type (
	mockLayout struct {
		mu     sync.Mutex
		now    time.Time
		timers []clockTimer
	}
	timerLayout struct {
		C       <-chan time.Time
		c       chan time.Time
		timer   *time.Timer
		next    time.Time
		mock    *clock.Mock
		fn      func()
		stopped bool
	}
	clockTimer interface {
		Next() time.Time
		Tick(time.Time)
	}
)

func (c *simClock) lock() *mockLayout {
	m := (*mockLayout)(unsafe.Pointer(c.Mock))
	m.mu.Lock()
	return m
}

func asTimer(t clockTimer) *timerLayout {
	return (*timerLayout)((*[2]unsafe.Pointer)(unsafe.Pointer(&t))[1])
}

// checkLayout reports whether clock.Mock still looks as this file takes it to look.
func checkLayout() error {
	for _, pair := range [][2]reflect.Type{
		{reflect.TypeFor[clock.Mock](), reflect.TypeFor[mockLayout]()},
		{reflect.TypeFor[clock.Timer](), reflect.TypeFor[timerLayout]()},
	} {
		theirs, ours := pair[0], pair[1]
		if theirs.Size() != ours.Size() || theirs.NumField() != ours.NumField() {
			return fmt.Errorf("%v has changed", theirs)
		}
		for i := range theirs.NumField() {
			a, b := theirs.Field(i), ours.Field(i)
			if a.Name != b.Name || a.Offset != b.Offset || a.Type.Kind() != b.Type.Kind() {
				return fmt.Errorf("%v.%s has changed", theirs, a.Name)
			}
		}
	}
	return nil
}

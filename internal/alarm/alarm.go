// Package alarm is one timer that can be set again and again, on any clock.
package alarm

import (
	"time"

	"github.com/benbjohnson/clock"
)

// longest is the furthest ahead that a timer is armed. Whoever waits looks at the clock again when it fires, so a lease of a
// century needs no timer of a century.
const longest = 24 * time.Hour

// Alarm wakes its one owner. It is not safe for concurrent use.
type Alarm struct {
	clk   clock.Clock
	timer *clock.Timer
}

// New returns an alarm on clk that is not set.
func New(clk clock.Clock) Alarm { return Alarm{clk: clk} }

// Set arms the alarm to fire once in d, which must be positive, or in a day if that is sooner, in place of what it was set to.
func (a *Alarm) Set(d time.Duration) {
	d = min(d, longest)
	if a.timer == nil {
		a.timer = a.clk.Timer(d)
		return
	}
	// clock.Mock sends a tick on a channel of one place while it holds its lock: a tick left unread would block the clock.
	a.Stop()
	a.timer.Reset(d)
}

// C returns the channel on which the alarm fires; nil, which blocks for ever, before the first Set.
func (a *Alarm) C() <-chan time.Time {
	if a.timer == nil {
		return nil
	}
	return a.timer.C
}

// Stop disarms the alarm and takes back a tick that was not read.
func (a *Alarm) Stop() {
	if a.timer == nil {
		return
	}
	a.timer.Stop()
	select {
	case <-a.timer.C:
	default:
	}
}

package leasetest

import (
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/lease"
)

const (
	// patience is how long the kit waits, outside bubbles, for what must happen. Only a failure takes that long.
	patience = 10 * time.Second
	// pause is how long it looks, outside bubbles, for what must not happen.
	pause = 20 * time.Millisecond
)

// now is the instant by which the kit counts.
func (k *kit) now() time.Time {
	if k.advance != nil {
		return time.Unix(0, 0).Add(time.Duration(k.moved.Load()))
	}
	return time.Now()
}

// sleep lets d pass.
func (k *kit) sleep(d time.Duration) {
	switch {
	case d <= 0:
	case k.advance != nil:
		k.moved.Add(int64(d))
		k.advance(d)
	default:
		time.Sleep(d)
	}
	if k.bubble {
		synctest.Wait()
	}
}

// settle lets other goroutines get as far as they can without time passing.
func (k *kit) settle() {
	if k.advance != nil {
		k.advance(0)
	}
	if k.bubble {
		synctest.Wait()
		return
	}
	time.Sleep(pause)
}

// justBefore lets time pass to the last instant of h; without an exact clock, to half of what is left.
func (k *kit) justBefore(h *held) {
	left := h.from.Sub(k.now())
	if k.exact() {
		k.sleep(left - 1)
		return
	}
	k.sleep(left / 2)
}

// pastEnd lets time pass until h is over for certain.
func (k *kit) pastEnd(h *held) { k.sleep(h.to.Sub(k.now()) + k.slackUnlessExact(h)) }

// slack is how far two clocks may differ over the length of h. It is never below the millisecond to which stores cut their times.
func (k *kit) slack(h *held) time.Duration {
	return max(time.Millisecond, k.slackUnlessExact(h))
}

func (k *kit) slackUnlessExact(h *held) time.Duration {
	if k.exact() {
		return 0
	}
	return lease.Margin(h.grant.TTL) + 5*time.Millisecond
}

// unlessLate skips the rest of the case if h may have ended by now: what the backend then says proves nothing.
func (k *kit) unlessLate(h *held) {
	k.Helper()
	if !k.exact() && !k.now().Before(h.from.Add(-k.slack(h))) {
		k.Skipf("this machine is too slow: a lease of %v ended between two calls; try WithTTL with more", h.grant.TTL)
	}
}

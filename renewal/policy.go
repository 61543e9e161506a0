package renewal

import (
	"time"

	"github.com/leasehold-go/leasehold/lease"
)

// plan is all that the decision about a held lease depends on. It is plain data: next reads it; confirmed and unconfirmed
// change it as their names say. It is passed by pointer because copies of it are what an actor's small stack
// would otherwise be full of.
type plan struct {
	ttl     time.Duration // length of the lease that is asked for
	granted time.Duration // and that was last granted: less after a hand-over
	every   time.Duration // time from one renewal to the next; 0: only when asked
	trust   time.Time     // the lease is lost from here on
	maxHold time.Time     // and from here on, unless zero
	due     time.Time     // next renewal, when every is not 0

	busy      bool // a call is in flight; there is never a second
	asked     bool // somebody waits for a renewal
	failing   bool // the last renewal was not confirmed
	abandoned bool // the handle was collected
}

// verb is what to do.
type verb uint8

const (
	wait  verb = iota // until the action's instant, or for news
	renew             // send a renewal
	lose              // end the lease, for the action's reason
)

type action struct {
	verb   verb
	until  time.Time
	reason lease.Reason
}

// next decides. The end of trust comes before everything else: nothing is sent for a lease that is lost. It has no memory of
// missed renewals, so a pause of many periods is followed by one renewal.
func (p *plan) next(now time.Time) action {
	end, reason := p.end()
	switch {
	case !now.Before(end):
		return action{verb: lose, reason: reason}
	case p.busy:
		return action{verb: wait, until: end}
	case p.asked:
		return action{verb: renew}
	case p.every == 0 && !p.abandoned:
		return action{verb: wait, until: end}
	case now.Before(p.due) && !p.suspect(now):
		return action{verb: wait, until: earlier(p.due, end)}
	case p.abandoned:
		return action{verb: lose, reason: lease.Abandoned}
	}
	return action{verb: renew}
}

// end returns when the lease is lost if nothing more is confirmed, and why.
func (p *plan) end() (time.Time, lease.Reason) {
	switch {
	case !p.maxHold.IsZero() && p.maxHold.Before(p.trust):
		return p.maxHold, lease.MaxHold
	case p.abandoned:
		return p.trust, lease.Abandoned
	}
	return p.trust, lease.Expired
}

// suspect reports whether the wall clock has passed the end of trust although the monotonic clock has not. Either the machine was
// suspended, which stops the monotonic clock, or somebody set the wall clock; only the store can tell, so it is
// asked at once, and again at the pace of retries.
func (p *plan) suspect(now time.Time) bool {
	return !p.failing && !now.Round(0).Before(p.trust.Round(0))
}

// confirmed notes that a renewal for ttl, sent at sent, got granted, which may be less. No renewal makes a lease end earlier than
// it did, so neither does the trust. jitter is from 0 to 1.
func (p *plan) confirmed(sent time.Time, ttl, granted time.Duration, jitter float64) {
	p.every = interval(p.every, ttl, p.ttl)
	p.ttl, p.granted, p.busy, p.failing = ttl, granted, false, false
	trusted := max(lease.TrustEnd(sent, granted).Sub(sent), p.trust.Sub(sent))
	p.trust = sent.Add(trusted) // counted from sent even if it stays the same: its wall reading is what suspect looks at
	in := interval(p.every, granted, p.ttl)
	p.due = sent.Add(in - time.Duration(jitter*float64(in)/10)) // up to 10 % early, never late
}

// unconfirmed notes that the outcome of a renewal is unknown at now. jitter is from 0 to 1.
func (p *plan) unconfirmed(now time.Time, jitter float64) {
	p.busy, p.failing = false, true
	p.due = now.Add(p.retryGap(p.trust.Sub(now), jitter))
}

// retryGap is an eighth of the trust that is left, less up to a quarter of it so that handles do not retry in step, and at
// least minGap: retries come closer together as the end does, and as far apart as leaves room for at least three.
func (p *plan) retryGap(left time.Duration, jitter float64) time.Duration {
	gap := left / 8
	gap -= time.Duration(jitter * float64(gap) / 4)
	return max(gap, minGap(p.granted))
}

// minGap is the least time between an unconfirmed renewal and the next: 1 % of what the lease was last granted for.
func minGap(granted time.Duration) time.Duration { return granted / 100 }

// callBound is how long one renewal may take: a third of the trust that is left, so that two more fit when it hangs, and no
// longer than lease.CallBound.
func (p *plan) callBound(now time.Time) time.Duration {
	return min(lease.CallBound(p.ttl), p.trust.Sub(now)/3)
}

// MinEvery is the shortest interval between renewals.
const MinEvery = time.Millisecond

// interval returns the renewal interval that is to every as num is to den, and at least MinEvery; 0, which is none, stays 0.
func interval(every, num, den time.Duration) time.Duration {
	if every == 0 {
		return 0
	}
	return max(MinEvery, scale(every, num, den))
}

// scale returns d × num / den without overflow. It is exact enough for intervals: a double has 53 bits.
func scale(d, num, den time.Duration) time.Duration {
	if num == den {
		return d
	}
	return time.Duration(float64(d) * (float64(num) / float64(den)))
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

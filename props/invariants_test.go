package props

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/lease"
)

// restInvariant holds for every handle that was held when last seen, whenever every goroutine is blocked.
type restInvariant struct {
	name  string
	holds func(*sim, *hold) error
}

var atRest = []restInvariant{
	{"LostOnTime", lostOnTimeAtRest},
	{"TrustWithinRecord", trustWithinRecord},
	{"TrustCounted", trustCounted},
	{"SignalsAgree", nothingSignalledWhileHeld},
	{"MaxHold", maxHoldKept},
	{"TokensIncrease", tokenStays},
}

// Lost closes no later than TrustedUntil, and no reply that comes after it extends the trust. hd.trust is what the handle showed when
// nothing was due before.
func lostOnTimeAtRest(s *sim, hd *hold) error {
	now := hd.w.clk.Now()
	if hd.w.paused || s.isDue() || hd.control.State() != lease.Held || now.Before(hd.trust) {
		return nil
	}
	if trust := hd.control.Trust(); now.Before(trust) {
		return fmt.Errorf("the trust was over at %v, and yet the lease was revived until %v", hd.ago(hd.trust), hd.ago(trust))
	}
	return fmt.Errorf("held although its trust ended at %v", hd.ago(hd.trust))
}

// In true time the record cannot expire before the trust in it does, whatever the rate of the worker's clock.
func trustWithinRecord(s *sim, hd *hold) error {
	trust := hd.control.Trust()
	if _, robbed := s.robbed[hd.key()]; robbed || hd.control.State() != lease.Held {
		return nil
	}
	if end, ok := s.expiry[hd.key()]; !ok || end < hd.w.clk.trueAt(trust) {
		return fmt.Errorf("trusted until %v, but the record ends at %v", hd.ago(trust), end)
	}
	return nil
}

// Trust is counted from the instant before one of the lease's requests was sent, less the margin, exactly.
func trustCounted(_ *sim, hd *hold) error {
	trust := hd.control.Trust()
	if trust.Equal(hd.counted) {
		return nil
	}
	for _, rq := range hd.reqs {
		if rq.op > opRenew {
			continue
		}
		if trust.Equal(lease.TrustEnd(rq.local, rq.ttl)) || rq.over && rq.err == nil && trust.Equal(lease.TrustEnd(rq.local, rq.grant.TTL)) {
			hd.counted = trust
			return nil
		}
	}
	return fmt.Errorf("trusted until %v, which is counted from no request", hd.ago(trust))
}

// What a call was given that ended without a lease does not stay with it: once nothing is due, it is not on record, or a withdrawal is on its way.
func givenBack(s *sim) error {
	for _, name := range s.names {
		r, ok := look(s.mem, name)
		if !ok || !s.store.Now().Before(r.expires) {
			continue
		}
		c := s.byOwner[r.owner]
		if c == nil {
			return fmt.Errorf("%s is on record for a stranger: %+v", name, r)
		}
		// What the network repeats may keep the name busy for one TTL.
		excused := func(rq *request) bool { return rq.op == opWithdraw || rq.fate.kind == duplicated }
		if c.over && c.err != nil && !slices.ContainsFunc(c.reqs, excused) {
			return fmt.Errorf("%s is on record for #%d, which ended: %v", name, c.id, c.err)
		}
	}
	return nil
}

func nothingSignalledWhileHeld(_ *sim, hd *hold) error {
	if hd.control.State() != lease.Held {
		return nil
	}
	switch {
	case hd.control.Err() != nil:
		return fmt.Errorf("held, but Err is %v", hd.control.Err())
	case hd.sig.lost != nil && closed(hd.sig.lost), hd.sig.done != nil && closed(hd.sig.done):
		return errors.New("held, but Lost or Done is closed")
	case hd.sig.ctx != nil && !hd.ctxEnds && hd.sig.ctx.Err() != nil:
		return errors.New("held, but Context is cancelled")
	}
	return nil
}

func maxHoldKept(s *sim, hd *hold) error {
	if hd.opts.maxHold == 0 || hd.w.paused || s.isDue() || hd.control.State() != lease.Held {
		return nil
	}
	if end := hd.gotLocal.Add(hd.opts.maxHold); !hd.w.clk.Now().Before(end) {
		return fmt.Errorf("held for longer than %v", hd.opts.maxHold)
	}
	return nil
}

func tokenStays(_ *sim, hd *hold) error {
	if hd.control.Token() != hd.token || hd.h != nil && hd.h.Token() != hd.token {
		return errors.New("the token has changed")
	}
	return nil
}

// ago is l in true time.
func (hd *hold) ago(l time.Time) time.Duration { return hd.w.clk.trueAt(l) }

// isDue reports whether something is still to happen at this instant.
func (s *sim) isDue() bool {
	return len(s.timers) > 0 || len(s.net) > 0 && s.net[0].at <= s.now
}

// historyInvariant holds for the whole of a case.
type historyInvariant struct {
	name  string
	holds func(*sim, *history) error
}

var overHistory = []historyInvariant{
	{"HandleXorError", handleXorError},
	{"TrustWindowsDisjoint", trustWindowsDisjoint},
	{"TokensIncrease", tokensIncrease},
	{"LostOnTime", lostOnTime},
	{"OnlyOwnersRecord", onlyOwnersRecord},
	{"FirstComeFirstServed", firstComeFirstServed},
	{"EndBeforeDelete", endBeforeDelete},
	{"NoCallsAfterEnd", noCallsAfterEnd},
	{"WithdrawnOnce", withdrawnOnce},
	{"OneCallInFlight", oneCallInFlight},
	{"Pacing", pacing},
	{"RenewedOnTime", renewedOnTime},
	{"ThreeTries", threeTries},
	{"StrictLoses", strictLoses},
	{"RefusedIsLost", refusedIsLost},
	{"ReasonsTrue", reasonsTrue},
	{"Abandonment", abandonment},
	{"ErrorsTell", errorsTell},
	{"WaitBounded", waitBounded},
	{"ReleaseExact", releaseExact},
	{"ObserverTurns", observerTurns},
}

// Every call returns a handle or an error, never both and never neither.
func handleXorError(_ *sim, h *history) error {
	for _, c := range h.calls {
		if c.over && c.nilHandle != (c.err != nil) {
			return fmt.Errorf("#%d: handle is nil: %v, error: %v", c.id, c.nilHandle, c.err)
		}
	}
	return nil
}

// The spans in which two users of one name may act, [acquire returned, min(ended, TrustedUntil)], never overlap in true time. A record that
// a third party deleted ends the span: the store did not keep what it had acknowledged.
func trustWindowsDisjoint(s *sim, h *history) error {
	type window struct {
		hd       *hold
		from, to stamp
	}
	byName := map[string][]window{}
	for _, hd := range h.holds {
		w := window{hd, hd.got, stamp{hd.w.clk.trueAt(hd.trust), 0}}
		if hd.state.Terminal() && hd.end.before(w.to) {
			w.to = hd.end
		}
		if d := hd.dropped; d != nil && d.before(w.to) {
			w.to = *d
		}
		if r, ok := s.robbed[hd.key()]; ok && r.before(w.to) {
			w.to = r
		}
		if w.from.before(w.to) {
			byName[hd.name] = append(byName[hd.name], w)
		}
	}
	for name, list := range byName {
		slices.SortFunc(list, func(a, b window) int { return a.from.seq - b.from.seq })
		for i := 1; i < len(list); i++ {
			for _, before := range list[:i] {
				if list[i].from.before(before.to) {
					return fmt.Errorf("%s: #%d could act until %v, #%d from %v", name, before.hd.id, before.to.at, list[i].hd.id, list[i].from.at)
				}
			}
		}
	}
	return nil
}

// Tokens of one name strictly increase in grant order, which sim.grantedLocked checks as it goes, and the handle has the token of its grant.
func tokensIncrease(_ *sim, h *history) error {
	for _, hd := range h.holds {
		if !slices.ContainsFunc(h.grants, func(g grant) bool { return g.token == hd.token && g.owner == hd.owner && g.name == hd.name }) {
			return fmt.Errorf("#%d has token %d, which its owner was not granted", hd.id, hd.token)
		}
	}
	return nil
}

// Lost closes no later than TrustedUntil on the worker's clock, and in true time never after the record's expiry; a paused worker
// cannot close anything before it goes on. A fast clock may show a nanosecond more than was asked for.
func lostOnTime(s *sim, h *history) error {
	for _, hd := range h.holds {
		if hd.state != lease.Lost {
			continue
		}
		last := hd.w.clk.trueAt(hd.trust)
		excused := false
		for _, p := range hd.w.pauses {
			if p[0] <= last && last <= p[1] {
				last, excused = p[1], true
			}
		}
		if hd.end.at > last {
			return fmt.Errorf("#%d was lost at %v, its trust ended at %v", hd.id, hd.end.at, last)
		}
		if _, robbed := s.robbed[hd.key()]; !robbed && !excused && hd.end.at > hd.expiry {
			return fmt.Errorf("#%d was lost at %v, its record expired at %v", hd.id, hd.end.at, hd.expiry)
		}
	}
	return nil
}

// A call changes only its own owner's record: a foreign one stays as it is, to the last byte, and nothing is created by a renewal.
func onlyOwnersRecord(_ *sim, h *history) error {
	for _, a := range h.applied {
		live := a.had && a.now.Before(a.before.expires)
		rq := a.req
		wrong := ""
		switch {
		case rq.call == nil || rq.call.w != rq.w || rq.call.name != rq.name:
			wrong = "it is not sent by whom it names"
		case live && a.before.owner != rq.owner:
			b, f := a.before, a.after
			if !a.has || b.owner != f.owner || b.token != f.token || b.label != f.label || !b.expires.Equal(f.expires) {
				wrong = "a foreign record was changed"
			}
		case rq.op == opRenew && live && a.before.token == rq.token:
			if a.err != nil || a.after.token != rq.token || !a.after.expires.Equal(a.prolonged()) {
				wrong = "the owner's renewal was not carried out"
			}
		case rq.op == opRenew:
			if a.err == nil || a.has && a.after.owner == rq.owner && !live && !slices.Contains(a.before.queue, rq.owner) {
				wrong = "a renewal revived a record"
			}
		case rq.op == opAcquire && live:
			if a.err != nil || a.after.token != a.before.token || !a.after.expires.Equal(a.prolonged()) {
				wrong = "a repeated attempt did not give the same grant again"
			}
		case (rq.op == opRelease || rq.op == opWithdraw) && a.err == nil && a.has && a.after.owner == rq.owner && a.after.token == a.before.token:
			wrong = "the record is still there"
		}
		if wrong != "" {
			return fmt.Errorf("r%d %s %s at %v: %s: %+v became %+v (%v), error %v", rq.id, rq.op, rq.name, a.at.at, wrong, a.before, a.after, a.has, a.err)
		}
	}
	return nil
}

// prolonged is when the owner's record ends after a renewal, or a repeated attempt: neither ever shortens it.
func (a *applied) prolonged() time.Time {
	if end := a.now.Add(a.req.ttl); end.After(a.before.expires) {
		return end
	}
	return a.before.expires
}

// A release hands the lease to the first in the queue.
func firstComeFirstServed(_ *sim, h *history) error {
	for _, a := range h.applied {
		if a.req.op != opRelease || !a.had || a.before.owner != a.req.owner || len(a.before.queue) == 0 || a.err != nil {
			continue
		}
		if !a.has || a.after.owner != a.before.queue[0] {
			return fmt.Errorf("r%d at %v: the lease did not go to the first in the queue: %+v became %+v", a.req.id, a.at.at, a.before, a.after)
		}
	}
	return nil
}

// The handle has ended, and no renewal of it runs, when its delete is sent.
func endBeforeDelete(_ *sim, h *history) error {
	for _, rq := range h.reqs {
		switch {
		case rq.op == opRelease && rq.state == lease.Held:
			return fmt.Errorf("r%d: the delete of #%d was sent at %v while the handle was held", rq.id, rq.callID(), rq.sent.at)
		case rq.op == opRelease && rq.renewals > 0:
			return fmt.Errorf("r%d: the delete of #%d was sent at %v while a renewal was under way", rq.id, rq.callID(), rq.sent.at)
		}
	}
	return nil
}

// When a handle is done there are no more calls for it but one delete; a released one may be released again by its user until the store has answered.
func noCallsAfterEnd(_ *sim, h *history) error {
	for _, hd := range h.holds {
		deletes, answered := 0, false
		byUser := 0
		for _, u := range h.users {
			if u.hold == hd && u.what == "Release" {
				byUser++
			}
		}
		for _, rq := range hd.reqs {
			switch {
			case rq.sent.before(hd.got):
			case rq.op != opRelease && rq.state.Terminal():
				return fmt.Errorf("r%d: %s for #%d at %v, after it had ended", rq.id, rq.op, hd.id, rq.sent.at)
			case rq.op == opRelease:
				if answered {
					return fmt.Errorf("r%d: another delete for #%d at %v, although the store had answered", rq.id, hd.id, rq.sent.at)
				}
				deletes++
				answered = rq.over && (rq.err == nil || errors.Is(rq.err, lease.ErrNotOwner))
			case rq.op != opRenew:
				return fmt.Errorf("r%d: %s for #%d at %v, after it was granted", rq.id, rq.op, hd.id, rq.sent.at)
			}
		}
		if most := max(1, byUser); deletes > most || hd.state == lease.Lost && deletes > 1 {
			return fmt.Errorf("%d deletes were sent for #%d", deletes, hd.id)
		}
	}
	return nil
}

// A call that ended without a lease, and of which an attempt ended unknown, gives back by one request what it may have been given, and sends
// nothing more.
func withdrawnOnce(_ *sim, h *history) error {
	for _, c := range h.calls {
		if !c.over {
			continue
		}
		n, unknown := 0, false
		for _, rq := range c.reqs {
			if n > 0 {
				return fmt.Errorf("r%d: %s for #%d after it was withdrawn", rq.id, rq.op, c.id)
			}
			if rq.op == opWithdraw {
				n++
				continue
			}
			if c.hold == nil && c.returned.before(rq.sent) {
				return fmt.Errorf("r%d: %s for #%d after the call had ended", rq.id, rq.op, c.id)
			}
			if rq.over && rq.err != nil && !errors.Is(rq.err, lease.ErrHeld) && !errors.Is(rq.err, lease.ErrNotOwner) {
				unknown = true
			}
		}
		switch {
		case c.hold != nil && n > 0:
			return fmt.Errorf("#%d was withdrawn although it was granted", c.id)
		case c.hold == nil && unknown && n == 0:
			return fmt.Errorf("#%d ended after an attempt whose outcome is unknown, and was not withdrawn", c.id)
		}
	}
	return nil
}

// There is never a second call in flight for one owner, but for a renewal that was hung up and does not listen.
func oneCallInFlight(_ *sim, h *history) error {
	for _, c := range h.calls {
		for i, rq := range c.reqs {
			for _, other := range c.reqs[:i] {
				if other.over && !rq.sent.before(other.back) {
					continue
				}
				if other.fate.kind == deaf && rq.op == opRelease {
					continue
				}
				if rq.op == opRelease && (other.op == opRenew || other.over && other.back.at == rq.sent.at) {
					continue // endBeforeDelete looks at these
				}
				return fmt.Errorf("r%d %s and r%d %s of #%d are under way at once", other.id, other.op, rq.id, rq.op, c.id)
			}
		}
	}
	return nil
}

// renewals returns hd's renewals, leaving out the confirmation of the grant.
func renewals(hd *hold) []*request {
	var list []*request
	for _, rq := range hd.reqs {
		if rq.op == opRenew && hd.got.before(rq.sent) {
			list = append(list, rq)
		}
	}
	return list
}

// asked reports whether a user asked for rq, the renewal that followed previous.
func asked(h *history, hd *hold, previous, rq *request) bool {
	for _, u := range h.users {
		if u.hold != hd || u.what != "Renew" || rq.sent.before(u.called) {
			continue
		}
		if previous != nil && previous.sent.before(u.called) || !u.over || rq.sent.before(u.returned) || contextEnded(u.err) {
			return true
		}
	}
	return false
}

func contextEnded(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Renewals that nobody asked for keep their distance: after one that was confirmed the interval, less up to 10 % of it; after one that
// was not, 1 % of what the lease was granted for. However long the worker was paused, there is one renewal and no burst.
func pacing(_ *sim, h *history) error {
	for _, hd := range h.holds {
		ttl := hd.opts.ttl
		var previous *request
		for _, rq := range renewals(hd) {
			p := previous
			previous = rq
			if p != nil && p.over && p.err == nil {
				ttl = p.ttl
			}
			if asked(h, hd, p, rq) || p == nil || !p.over {
				continue
			}
			from, least := p.backLocal, lease.ClaimTTL(ttl)/100
			if p.err == nil {
				from, least = p.local, interval(hd, ttl)*9/10-time.Microsecond
			}
			if gap := rq.local.Sub(from); gap < least {
				return fmt.Errorf("r%d, renewal of #%d at %v, follows r%d after %v, and should not before %v", rq.id, hd.id, rq.sent.at, p.id, gap, least)
			}
		}
	}
	return nil
}

// interval is the time from one renewal to the next of a lease that was prolonged to ttl, at least 1 ms.
func interval(hd *hold, ttl time.Duration) time.Duration {
	return max(time.Millisecond, time.Duration(float64(hd.opts.every)*float64(ttl)/float64(hd.opts.ttl)))
}

// A confirmed renewal is followed by another within the interval, unless the worker is paused then.
func renewedOnTime(s *sim, h *history) error {
	for _, hd := range h.holds {
		if hd.opts.noRenewal {
			continue
		}
		list := renewals(hd)
		for i, p := range list {
			if !p.over || p.err != nil {
				continue
			}
			due := hd.w.clk.trueAt(p.local.Add(interval(hd, p.ttl) + time.Microsecond))
			due = max(due, p.back.at)
			for _, w := range hd.w.pauses {
				if w[0] <= due && due <= w[1] {
					due = w[1]
				}
			}
			if hd.w.paused && hd.w.since <= due || due >= s.now {
				continue
			}
			if hd.state.Terminal() && hd.end.at <= due || hd.dropped != nil {
				continue
			}
			if i+1 == len(list) || list[i+1].sent.at > due {
				return fmt.Errorf("#%d: r%d was confirmed, and no renewal followed by %v", hd.id, p.id, due)
			}
		}
	}
	return nil
}

// At least three renewals fit between the last confirmation and the end of trust, if the worker is not paused.
func threeTries(_ *sim, h *history) error {
	for _, hd := range h.holds {
		if hd.reason != lease.Expired || hd.opts.noRenewal || hd.opts.strict || len(hd.w.pauses) > 0 {
			continue
		}
		n, ordinary := 0, true
		for _, rq := range renewals(hd) {
			n++
			if rq.ttl != hd.opts.ttl || rq.fate.kind == deaf {
				ordinary = false
			}
			if rq.over && rq.err == nil {
				n = 0
			}
		}
		if ordinary && n < 3 && hd.trust.Sub(hd.gotLocal) > (hd.opts.ttl-lease.Margin(hd.opts.ttl))*9/10 {
			return fmt.Errorf("#%d was lost after %d tries", hd.id, n)
		}
	}
	return nil
}

// Under strict renewal a renewal whose outcome is unknown is a loss at once.
func strictLoses(_ *sim, h *history) error {
	for _, hd := range h.holds {
		if !hd.opts.strict {
			continue
		}
		for _, rq := range renewals(hd) {
			if rq.over && rq.err != nil && !(hd.state.Terminal() && hd.end.at <= rq.back.at) {
				return fmt.Errorf("#%d is strict and still held after r%d at %v: %v", hd.id, rq.id, rq.back.at, rq.err)
			}
		}
	}
	return nil
}

// A renewal that the store refuses is a loss at once.
func refusedIsLost(_ *sim, h *history) error {
	for _, hd := range h.holds {
		for _, rq := range renewals(hd) {
			if rq.over && errors.Is(rq.err, lease.ErrNotOwner) && !(hd.state.Terminal() && hd.end.at <= rq.back.at) {
				return fmt.Errorf("#%d is still held after r%d was refused at %v", hd.id, rq.id, rq.back.at)
			}
		}
	}
	return nil
}

// The reason of a loss is what happened; a lease whose renewals are confirmed is not lost.
func reasonsTrue(s *sim, h *history) error {
	for _, hd := range h.holds {
		if hd.state != lease.Lost {
			continue
		}
		var last *request
		for _, rq := range renewals(hd) {
			last = rq
		}
		ok := true
		switch hd.reason {
		case lease.Expired:
			paused := false
			for _, p := range hd.w.pauses {
				if p[1] > hd.got.at && p[0] < hd.end.at && (last == nil || p[1] > last.sent.at) {
					paused = true
				}
			}
			short := hd.gotTrust < hd.opts.ttl*3/5 // it came late, or was handed over for a short claim
			ok = hd.opts.noRenewal || paused || last != nil && (!last.over || hd.end.before(last.back) || last.err != nil || last.back.at-last.sent.at > hd.opts.ttl/4) ||
				last == nil && short || last != nil && last.ttl < 20*time.Millisecond
		case lease.Missing, lease.Taken:
			_, robbed := s.robbed[hd.key()]
			ok = robbed || last != nil && hd.expiry <= hd.end.at
		case lease.MaxHold:
			ok = hd.opts.maxHold > 0 && hd.endSeen.Sub(hd.gotLocal) >= hd.opts.maxHold
		case lease.Closed:
			ok = hd.w.closeCalled
		case lease.Abandoned:
			ok = hd.dropped != nil
		default:
			ok = false
		}
		if !ok {
			return fmt.Errorf("#%d was lost at %v for no such reason: %v", hd.id, hd.end.at, hd.endErr)
		}
	}
	return nil
}

// Once the collector has noticed that a handle was dropped, nothing is renewed, the lease ends with its trust, and one warning names it.
func abandonment(_ *sim, h *history) error {
	logged := warnings.take()
	for _, hd := range h.holds {
		key, want := hd.name+" "+hd.token.String()+" ", 0
		if hd.reason == lease.Abandoned {
			want = 1
		}
		if logged[key] != want {
			return fmt.Errorf("#%d: %d warnings, want %d", hd.id, logged[key], want)
		}
		delete(logged, key)
	}
	if len(logged) > 0 {
		return fmt.Errorf("warnings that belong to no handle: %v", logged)
	}
	for _, hd := range h.holds {
		if hd.dropped == nil {
			continue
		}
		for _, rq := range hd.reqs {
			// A user who asked, and did not stay to hear, may still be served.
			if rq.op == opRenew && hd.dropped.before(rq.sent) && !asked(h, hd, nil, rq) {
				return fmt.Errorf("r%d renews #%d at %v, after its handle was dropped", rq.id, hd.id, rq.sent.at)
			}
		}
	}
	return nil
}

// The errors of Lock and TryLock tell contention, the end of the wait, trouble with the backend and the end of the Locker apart.
func errorsTell(_ *sim, h *history) error {
	for _, c := range h.calls {
		if !c.over || c.err == nil {
			continue
		}
		err := c.err
		held, ended, closed := errors.Is(err, lease.ErrHeld), contextEnded(err), errors.Is(err, lease.ErrClosed)
		wasHeld := false
		for _, rq := range c.reqs {
			wasHeld = wasHeld || rq.told || errors.Is(rq.err, lease.ErrHeld)
		}
		wrong := ""
		switch {
		case errors.Is(err, lease.ErrInvalid), errors.Is(err, lease.ErrPermanent), errors.Is(err, lease.ErrLost):
			wrong = "an error of another kind"
		case held && !wasHeld:
			wrong = "ErrHeld, but the store never said so"
		case closed && !c.closed:
			wrong = "ErrClosed, but the Locker was open"
		case closed:
		case c.kind == "TryLock" && held && ended:
			wrong = "a single try that was refused has no context error"
		case c.kind == "TryLock":
		case c.cancelled && !ended:
			wrong = "cancelled, but no context error"
		case !c.cancelled && (c.wait == 0 || !errors.Is(err, context.DeadlineExceeded)):
			wrong = "the wait was not over"
		}
		if wrong != "" {
			return fmt.Errorf("%s #%d: %s: %v", c.kind, c.id, wrong, err)
		}
	}
	return nil
}

// A call with a bound on its wait returns when that is over, on time.
func waitBounded(s *sim, h *history) error {
	for _, c := range h.calls {
		if c.wait == 0 {
			continue
		}
		end := c.w.clk.trueAt(c.calledLocal.Add(c.wait))
		for _, p := range c.w.pauses {
			if p[0] <= end && end <= p[1] {
				end = p[1]
			}
		}
		switch {
		case !c.over && (s.now <= end || c.w.paused):
		case !c.over:
			return fmt.Errorf("#%d still waits at %v, its time was over at %v", c.id, s.now, end)
		case c.returned.at > end:
			return fmt.Errorf("#%d returned at %v, its time was over at %v", c.id, c.returned.at, end)
		}
	}
	return nil
}

// A release that returns nil means that nobody else held the lease since its grant.
func releaseExact(s *sim, h *history) error {
	for _, u := range h.users {
		if u.what != "Release" || !u.over {
			continue
		}
		switch {
		case u.err == nil:
			for _, g := range h.grants {
				if g.name == u.hold.name && g.token > u.hold.token && g.at.before(u.called) && firstRelease(h, u) {
					return fmt.Errorf("#%d was released at %v with nil, although token %d had been granted", u.hold.id, u.called.at, g.token)
				}
			}
			if u.hold.state == lease.Lost {
				return fmt.Errorf("#%d was lost, and its release at %v returned nil", u.hold.id, u.called.at)
			}
		case errors.Is(u.err, lease.ErrLost):
			if _, robbed := s.robbed[u.hold.key()]; u.hold.state == lease.Released && !robbed && !s.lateRelease(u.hold) {
				return fmt.Errorf("#%d was released at %v within its trust, and yet: %v", u.hold.id, u.called.at, u.err)
			}
		}
	}
	return nil
}

// lateRelease reports whether a delete of hd reached the store after the record's time, or twice.
func (s *sim) lateRelease(hd *hold) bool {
	for _, a := range s.hist.applied {
		if a.req.call == hd.call && a.req.op == opRelease && errors.Is(a.err, lease.ErrNotOwner) && a.at.at >= hd.expiry {
			return true
		}
	}
	return false
}

func firstRelease(h *history, u *userCall) bool {
	for _, o := range h.users {
		if o.hold == u.hold && o.what == "Release" {
			return o == u
		}
	}
	return false
}

// Observers hear of one end, of RenewFailing once until Recovered, and of nothing after the end.
func observerTurns(_ *sim, h *history) error {
	for _, hd := range h.holds {
		failing, ended := false, false
		for _, k := range h.hooks[hd.key()] {
			switch {
			case ended:
				return fmt.Errorf("#%d: observer told of %s after the end", hd.id, k.what)
			case k.what == "RenewFailing" && failing, k.what == "Recovered" && !failing:
				return fmt.Errorf("#%d: observer told of %s out of turn", hd.id, k.what)
			}
			failing = k.what == "RenewFailing" || failing && k.what != "Recovered"
			ended = k.what == "Lost" || k.what == "Released"
		}
		if hd.state.Terminal() != ended {
			return fmt.Errorf("#%d: state %v, but observer told of the end: %v", hd.id, hd.state, ended)
		}
	}
	return nil
}

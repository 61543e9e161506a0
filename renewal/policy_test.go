package renewal

import (
	"fmt"
	"math/big"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/leasehold-go/leasehold/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The instants of the tables: a lease of 30 s that was confirmed at 0.
const (
	ttl   = 30 * time.Second
	every = ttl / 3
	ends  = ttl - ttl/100 - 2*time.Millisecond
)

// realNow has a monotonic reading.
var realNow = time.Now()

func at(d time.Duration) time.Time { return realNow.Add(d) }

// wall returns t with its wall reading moved by d, in whole seconds.
func wall(t time.Time, d time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) += uint64(d/time.Second) << 30
	return t
}

// states are the ways that a held lease can be in, each a change to one that was just confirmed.
var states = map[string]func(p *plan){
	"waiting":               func(p *plan) {},
	"in flight":             func(p *plan) { p.busy = true },
	"asked":                 func(p *plan) { p.asked = true },
	"asked, in flight":      func(p *plan) { p.asked, p.busy = true, true },
	"failing":               func(p *plan) { p.unconfirmed(at(every), 0) },
	"failing, in flight":    func(p *plan) { p.unconfirmed(at(every), 0); p.busy = true },
	"manual":                func(p *plan) { p.every = 0 },
	"manual, asked":         func(p *plan) { p.every, p.asked = 0, true },
	"manual, in flight":     func(p *plan) { p.every, p.busy = 0, true },
	"dropped":               func(p *plan) { p.abandoned = true },
	"dropped, in flight":    func(p *plan) { p.abandoned, p.busy = true, true },
	"dropped, manual":       func(p *plan) { p.abandoned, p.every = true, 0 },
	"longest hold":          func(p *plan) { p.maxHold = at(20 * time.Second) },
	"longest hold, dropped": func(p *plan) { p.maxHold, p.abandoned = at(20*time.Second), true },
	"longest hold, busy":    func(p *plan) { p.maxHold, p.busy = at(20*time.Second), true },
	"longest hold is long":  func(p *plan) { p.maxHold = at(time.Hour) },
	"longest hold = trust":  func(p *plan) { p.maxHold = at(ends) },
}

// looks are the instants at which the actor may look.
var looks = []struct {
	name string
	now  time.Time
}{
	{"at once", at(0)},
	{"1 ns before due", at(every - 1)},
	{"due", at(every)},
	{"late", at(15 * time.Second)},
	{"hold over", at(20 * time.Second)},
	{"1 ns before the end", at(ends - 1)},
	{"the end", at(ends)},
	{"long past", at(10 * ttl)},
	{"wall ahead", wall(at(time.Second), time.Hour)},
	{"wall behind", wall(at(time.Second), -time.Hour)},
}

const (
	dueAt   = "wait until 10s"
	endAt   = "wait until 29.698s"
	holdAt  = "wait until 20s"
	sends   = "renew"
	expired = "lose: expired"
	dropped = "lose: handle dropped"
	maxHold = "lose: longest hold reached"
	retryAt = "wait until 12.46225s" // an eighth of the trust that was left at 10 s
)

// decisions has a row for each state and a column for each look.
var decisions = map[string][]string{
	//                        at once, before due, due, late, hold over, before the end, the end, long past, wall ahead, wall behind
	"waiting":               {dueAt, dueAt, sends, sends, sends, sends, expired, expired, sends, dueAt},
	"in flight":             {endAt, endAt, endAt, endAt, endAt, endAt, expired, expired, endAt, endAt},
	"asked":                 {sends, sends, sends, sends, sends, sends, expired, expired, sends, sends},
	"asked, in flight":      {endAt, endAt, endAt, endAt, endAt, endAt, expired, expired, endAt, endAt},
	"failing":               {retryAt, retryAt, retryAt, sends, sends, sends, expired, expired, retryAt, retryAt},
	"failing, in flight":    {endAt, endAt, endAt, endAt, endAt, endAt, expired, expired, endAt, endAt},
	"manual":                {endAt, endAt, endAt, endAt, endAt, endAt, expired, expired, endAt, endAt},
	"manual, asked":         {sends, sends, sends, sends, sends, sends, expired, expired, sends, sends},
	"manual, in flight":     {endAt, endAt, endAt, endAt, endAt, endAt, expired, expired, endAt, endAt},
	"dropped":               {dueAt, dueAt, dropped, dropped, dropped, dropped, dropped, dropped, dropped, dueAt},
	"dropped, in flight":    {endAt, endAt, endAt, endAt, endAt, endAt, dropped, dropped, endAt, endAt},
	"dropped, manual":       {dropped, dropped, dropped, dropped, dropped, dropped, dropped, dropped, dropped, dropped},
	"longest hold":          {dueAt, dueAt, sends, sends, maxHold, maxHold, maxHold, maxHold, sends, dueAt},
	"longest hold, dropped": {dueAt, dueAt, dropped, dropped, maxHold, maxHold, maxHold, maxHold, dropped, dueAt},
	"longest hold, busy":    {holdAt, holdAt, holdAt, holdAt, maxHold, maxHold, maxHold, maxHold, holdAt, holdAt},
	"longest hold is long":  {dueAt, dueAt, sends, sends, sends, sends, expired, expired, sends, dueAt},
	"longest hold = trust":  {dueAt, dueAt, sends, sends, sends, sends, expired, expired, sends, dueAt},
}

// confirmedAt0 is the plan of a lease that was confirmed at 0.
func confirmedAt0() *plan {
	p := &plan{ttl: ttl, every: every}
	p.confirmed(at(0), ttl, ttl, 0)
	return p
}

func describe(a action) string {
	switch a.verb {
	case renew:
		return sends
	case lose:
		return "lose: " + a.reason.String()
	}
	return fmt.Sprint("wait until ", a.until.Sub(realNow))
}

func TestPlan_EveryStateAtEveryLook(t *testing.T) {
	if len(states) != len(decisions) {
		t.Errorf("%d states and %d rows", len(states), len(decisions))
	}
	for state, change := range states {
		row := decisions[state]
		if len(row) != len(looks) {
			t.Errorf("%s: %d decisions for %d looks", state, len(row), len(looks))
			continue
		}
		for i, look := range looks {
			p := confirmedAt0()
			change(p)
			if state == "dropped, manual" {
				p.due = at(0) // as confirmed leaves it when there is no interval
			}
			before := *p
			if got := describe(p.next(look.now)); got != row[i] {
				t.Errorf("%s, %s: got %s, want %s", state, look.name, got, row[i])
			}
			if *p != before {
				t.Errorf("%s, %s: next has changed the plan", state, look.name)
			}
		}
	}
}

// What must hold for every plan, whatever the table says.
func TestPlan_NextAlways(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		instant := func(name string) time.Time {
			return at(time.Duration(rapid.Int64Range(0, 100).Draw(t, name)) * time.Second)
		}
		p := &plan{ttl: ttl, every: every, trust: instant("trust"), due: instant("due")}
		p.busy, p.asked = rapid.Bool().Draw(t, "busy"), rapid.Bool().Draw(t, "asked")
		p.failing, p.abandoned = rapid.Bool().Draw(t, "failing"), rapid.Bool().Draw(t, "abandoned")
		if rapid.Bool().Draw(t, "manual") {
			p.every = 0
		}
		if rapid.Bool().Draw(t, "has a longest hold") {
			p.maxHold = instant("maxHold")
		}
		now := wall(instant("now"), time.Duration(rapid.Int64Range(-100, 100).Draw(t, "wall"))*time.Second)

		end := p.trust
		if !p.maxHold.IsZero() {
			end = earlier(end, p.maxHold)
		}
		act := p.next(now)
		over := !now.Before(end)
		switch {
		case over && act.verb != lose:
			t.Fatalf("%s after the end", describe(act))
		case act.verb == lose && !over && (act.reason != lease.Abandoned || !p.abandoned || p.busy || p.asked):
			t.Fatalf("%s before the end", describe(act))
		case act.verb == renew && (p.busy || p.every == 0 && !p.asked || p.abandoned && !p.asked):
			t.Fatalf("%s although %+v", describe(act), p)
		case act.verb == wait && (!act.until.After(now) || act.until.After(end)):
			t.Fatalf("%s at %v, want an instant up to the end at %v", describe(act), now.Sub(realNow), end.Sub(realNow))
		case act.verb == wait && !p.busy && p.every > 0 && act.until.After(p.due):
			t.Fatalf("%s, and due at %v", describe(act), p.due.Sub(realNow))
		}
	})
}

// lengths draws a legal TTL and an interval that validation lets pass, long and short ones.
func lengths(t *rapid.T) (ttl, every time.Duration) {
	longest := rapid.SampledFrom([]time.Duration{20 * time.Millisecond, time.Second, time.Hour, lease.MaxTTL}).Draw(t, "up to")
	ttl = time.Duration(rapid.Int64Range(int64(lease.MinTTL), int64(longest)).Draw(t, "ttl"))
	switch rapid.IntRange(0, 2).Draw(t, "interval") {
	case 0:
		return ttl, ttl / 3
	case 1:
		return ttl, ttl / 2
	}
	return ttl, time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(ttl/2)).Draw(t, "every"))
}

func jitter(t *rapid.T) float64 {
	if rapid.Bool().Draw(t, "edge") {
		return float64(rapid.IntRange(0, 1).Draw(t, "jitter"))
	}
	return rapid.Float64Range(0, 1).Draw(t, "jitter")
}

// tries returns how many renewals are sent before the lease is lost, if each takes as long as took says and fails.
func tries(t *rapid.T, p *plan, now time.Time, took func(bound time.Duration) time.Duration) int {
	for n := 0; ; {
		act := p.next(now)
		switch act.verb {
		case lose:
			return n
		case wait:
			now = act.until
		case renew:
			n++
			if n == 3 {
				return n
			}
			p.busy = true
			now = now.Add(took(p.callBound(now)))
			if p.next(now).verb == lose {
				return n
			}
			p.unconfirmed(now, jitter(t))
		}
	}
}

func TestPlan_ThreeTriesFit(t *testing.T) {
	for name, took := range map[string]func(time.Duration) time.Duration{
		"FailAtOnce": func(time.Duration) time.Duration { return 0 },
		"Hang":       func(bound time.Duration) time.Duration { return bound },
	} {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			ttl, every := lengths(t)
			p := &plan{ttl: ttl, every: every}
			p.confirmed(at(0), ttl, ttl, jitter(t))
			if n := tries(t, p, at(0), took); n < 3 {
				t.Fatalf("TTL %v, renewed every %v: only %d tries before the trust ends", ttl, every, n)
			}
		}))
	}
}

// A lease that a queue has handed over runs for a short claim at first. One hiccup must not end it.
func TestPlan_ThreeTriesFitIntoAClaim(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ttl, every := lengths(t)
		p := &plan{ttl: ttl, every: every}
		p.confirmed(at(0), ttl, lease.ClaimTTL(ttl), jitter(t))
		if n := tries(t, p, at(0), func(time.Duration) time.Duration { return 0 }); n < 3 {
			t.Fatalf("TTL %v, renewed every %v, handed over for %v: only %d tries before the trust ends", ttl, every, lease.ClaimTTL(ttl), n)
		}
	})
}

func TestPlan_Confirmed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ttl, every := lengths(t)
		p := &plan{ttl: ttl, every: every, busy: true, failing: true}
		granted := min(ttl, max(lease.MinTTL, time.Duration(rapid.Int64Range(int64(ttl/10), int64(ttl)).Draw(t, "granted"))))
		j := jitter(t)
		p.confirmed(at(0), ttl, granted, j)
		if p.busy || p.failing || !p.trust.Equal(lease.TrustEnd(at(0), granted)) {
			t.Fatalf("%+v", p)
		}
		// Up to 10 % early, never late; a shorter grant is renewed sooner in proportion.
		want := interval(every, granted, ttl)
		if due := p.due.Sub(at(0)); due > want || due < want-want/10-1 {
			t.Fatalf("due at %v, the interval is %v", due, want)
		}
		if !p.due.Before(p.trust) {
			t.Fatalf("due at %v, trusted until %v", p.due.Sub(realNow), p.trust.Sub(realNow))
		}
	})
}

func TestPlan_JitterEdges(t *testing.T) {
	for j, want := range map[float64]time.Duration{0: every, 0.5: every - every/20, 1: every - every/10} {
		p := &plan{ttl: ttl, every: every}
		p.confirmed(at(0), ttl, ttl, j)
		if got := p.due.Sub(at(0)); got != want {
			t.Errorf("jitter %v: due at %v, want %v", j, got, want)
		}
		p.unconfirmed(at(every), j)
		gap := p.due.Sub(at(every))
		whole := (ends - every) / 8
		if gap > whole || gap < whole-whole/4 {
			t.Errorf("jitter %v: next try after %v, want %v or up to a quarter sooner", j, gap, whole)
		}
	}
}

func TestPlan_RetriesKeepTheirDistance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ttl, every := lengths(t)
		p := &plan{ttl: ttl, every: every}
		p.confirmed(at(0), ttl, ttl, 0)
		now := at(time.Duration(rapid.Int64Range(0, 2*int64(p.trust.Sub(at(0)))).Draw(t, "now"))) // past the end too
		p.unconfirmed(now, jitter(t))
		if gap := p.due.Sub(now); gap < minGap(ttl) {
			t.Fatalf("next try after %v, want at least %v", gap, minGap(ttl))
		}
		if !p.failing || p.busy {
			t.Fatalf("%+v", p)
		}
	})
}

// RenewFor scales the interval. It stays one that WithRenewEvery would accept: at least a millisecond, so that neither does it vanish,
// which would turn renewing off, nor do renewals follow each other without a pause.
func TestPlan_ScaledIntervalHasAFloor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ttl, every := lengths(t)
		p := &plan{ttl: ttl, every: every}
		p.confirmed(at(0), ttl, ttl, 0)
		next, _ := lengths(t)
		p.confirmed(at(0), next, next, 0)
		if p.every < time.Millisecond {
			t.Fatalf("TTL %v renewed every %v, then for %v: every %v", ttl, every, next, p.every)
		}
	})
}

func TestPlan_RenewForScalesTheInterval(t *testing.T) {
	p := confirmedAt0()
	p.confirmed(at(0), 20*ttl, 20*ttl, 0)
	if p.every != 20*every || p.ttl != 20*ttl || !p.due.Equal(at(20*every)) || !p.trust.Equal(lease.TrustEnd(at(0), 20*ttl)) {
		t.Errorf("longer: %+v", p)
	}
	trust := p.trust
	p.confirmed(at(0), ttl, ttl, 0)
	if p.every != every || p.ttl != ttl || !p.due.Equal(at(every)) || !p.trust.Equal(trust) {
		t.Errorf("shorter again: %+v, want the old interval, and the trust as it was", p)
	}
}

// The trust never ends earlier for a renewal, and never later than the latest grant allows.
func TestPlan_TrustNeverGoesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := confirmedAt0()
		now, latest := at(0), p.trust
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			before := p.trust
			sent := now
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(ttl)).Draw(t, "took")))
			if rapid.Bool().Draw(t, "confirmed") {
				length := time.Duration(rapid.Int64Range(int64(lease.MinTTL), int64(2*ttl)).Draw(t, "length"))
				granted := time.Duration(rapid.Int64Range(int64(lease.MinTTL), int64(length)).Draw(t, "granted"))
				p.confirmed(sent, length, granted, jitter(t))
				if end := lease.TrustEnd(sent, granted); end.After(latest) {
					latest = end
				}
			} else {
				p.unconfirmed(now, jitter(t))
			}
			if p.trust.Before(before) || !p.trust.Equal(latest) {
				t.Fatalf("trust went from %v to %v, the latest grant allows %v", before.Sub(realNow), p.trust.Sub(realNow), latest.Sub(realNow))
			}
		}
	})
}

// After a renewal that was sent when the wall clock had been set, the plan is at rest again, whatever the lengths: the store has answered.
func TestPlan_ConfirmedSettlesASuspicion(t *testing.T) {
	for name, length := range map[string]time.Duration{"Same": ttl, "Longer": 2 * ttl, "Shorter": ttl / 2} {
		for _, step := range []time.Duration{time.Hour, -time.Hour} {
			p := confirmedAt0()
			now := wall(at(time.Second), step)
			if got := p.suspect(now); got != (step > 0) {
				t.Errorf("a step of %v: suspect %v", step, got)
			}
			p.confirmed(now, length, length, 0)
			if p.suspect(now) || p.next(now).verb != wait {
				t.Errorf("%s length, a step of %v: suspect %v, %s at once", name, step, p.suspect(now), describe(p.next(now)))
			}
		}
	}
}

// An answer that does not come lets the next look wait for its turn: suspicion does not make the retries a burst.
func TestPlan_SuspicionKeepsThePaceOfRetries(t *testing.T) {
	p := confirmedAt0()
	now := wall(at(time.Second), time.Hour)
	p.unconfirmed(now, 0)
	if act := p.next(now); act.verb != wait || act.until.Sub(now) < minGap(ttl) {
		t.Errorf("%s", describe(act))
	}
}

func TestScale(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.Int64Range(1, int64(lease.MaxTTL))
		den := length.Draw(t, "den")
		d, num := rapid.Int64Range(0, den).Draw(t, "d"), length.Draw(t, "num") // an interval is never longer than its TTL
		got := int64(scale(time.Duration(d), time.Duration(num), time.Duration(den)))
		want := new(big.Int).Mul(big.NewInt(d), big.NewInt(num))
		want.Quo(want, big.NewInt(den))
		if diff := got - want.Int64(); got < 0 || diff > 1+want.Int64()>>50 || diff < -1-want.Int64()>>50 {
			t.Fatalf("%d × %d / %d: got %d, want %d", d, num, den, got, want.Int64())
		}
	})
}

// The bound on a call leaves room for two more.
func TestPlan_CallBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ttl, every := lengths(t)
		p := &plan{ttl: ttl, every: every}
		p.confirmed(at(0), ttl, ttl, 0)
		left := time.Duration(rapid.Int64Range(1, int64(p.trust.Sub(at(0)))).Draw(t, "left"))
		bound := p.callBound(p.trust.Add(-left))
		if bound < 0 || bound > left/3 || bound > lease.CallBound(ttl) {
			t.Fatalf("%v left: a call is bound by %v", left, bound)
		}
	})
}

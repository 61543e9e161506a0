package props

import (
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// Cases that a random walk found once, or would seldom find.

// A RenewFor with a shorter length is under way for longer than its caller waits; the next renewal, for the ordinary length, overtakes it and
// is confirmed; then the first arrives. It must not cut the record to its length, of which the handle does not know.
func TestCase_LateShorterRenewal(t *testing.T) {
	once(t, func(s *sim) {
		w := s.addWorker(0, 0, 0, true, options{ttl: time.Second, every: time.Second / 3})
		c := s.lock(w, "a", w.opts, tryWay, 0, false)
		s.pass(250 * time.Millisecond)
		w.link.fates = []fate{{kind: fine, there: 500 * time.Millisecond, tell: -1}}
		s.renew(c.hold, 500*time.Millisecond, 0)
		s.pass(time.Second)
	})
}

// A renewal is confirmed after the end of trust, here because the worker was stopped meanwhile: the lease is lost, and given back by one
// delete. Close waits for that delete, and leaves no timer behind.
func TestCase_CloseWaitsForGiveBack(t *testing.T) {
	once(t, func(s *sim) {
		s.netFirst = true
		w := s.addWorker(0, 0, 2, true, options{ttl: time.Second, every: time.Second / 3})
		c := s.lock(w, "a", w.opts, tryWay, 0, false)
		s.pass(250 * time.Millisecond)
		w.link.there, w.link.back = 20*time.Millisecond, 20*time.Millisecond
		s.renew(c.hold, 0, 0)
		s.pass(0)
		s.pause(w)
		s.pass(900 * time.Millisecond)
		s.resume(w)
		s.pass(0)
		s.close(w)
		if !s.runUntil(time.Second, func() bool { return w.closed != nil }) {
			s.fail("NothingLeft", "Close does not return")
		}
		if n := w.clk.pending(); n > 0 {
			s.fail("NothingLeft", "Close has returned, %d timers are left on the clock of %s", n, w.name)
		}
	})
}

// once runs one case that draws nothing.
func once(t *testing.T, f func(*sim)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, time.Second, 1)
		defer func() {
			if t.Failed() {
				t.Logf("history:\n%s", &s.hist)
			}
			s.teardown()
		}()
		f(s)
		s.judge()
	})
}

// A hundred waiters that poll, or handles that renew, and began at one instant do not stay in step: no millisecond has more than ten of
// them.
func TestCase_NoLockStep(t *testing.T) {
	const n = 100
	once(t, func(s *sim) {
		w := s.addWorker(0, 0, 7, false, options{ttl: 10 * time.Second, every: 3 * time.Second})
		s.lock(w, "held", w.opts, tryWay, 0, true)
		s.pass(0)
		for range n {
			s.lock(w, "held", w.opts, lockWay, 0, true)
		}
		s.pass(3 * time.Second)
		spread(t, s, opAcquire, 25*time.Millisecond)
	})
	once(t, func(s *sim) {
		w := s.addWorker(0, 0, 7, false, options{ttl: 10 * time.Second, every: 3 * time.Second})
		for i := range n + 1 {
			s.lock(w, strconv.Itoa(i), w.opts, tryWay, 0, true)
		}
		s.pass(16 * time.Second)
		spread(t, s, opRenew, 0)
	})
}

// spread checks that the second to fifth requests of the calls are not in step.
func spread(t *testing.T, s *sim, o op, least time.Duration) {
	t.Helper()
	byRank := map[int][]time.Duration{}
	for _, c := range s.hist.calls[1:] {
		rank := 0
		for _, rq := range c.reqs {
			if rq.op == o {
				rank++
				byRank[rank] = append(byRank[rank], rq.sent.at)
			}
		}
	}
	for rank := 2; rank <= 5; rank++ {
		times := byRank[rank]
		slices.Sort(times)
		buckets := map[time.Duration]int{}
		for _, at := range times {
			buckets[at.Truncate(time.Millisecond)]++
		}
		for at, n := range buckets {
			if n > 10 {
				t.Errorf("%s number %d: %d of %d within the millisecond from %v", o, rank, n, len(times), at)
			}
		}
		if len(times) < 90 || times[len(times)-1]-times[0] < least {
			t.Errorf("%s number %d: %d of them from %v to %v", o, rank, len(times), times[0], times[len(times)-1])
		}
	}
}

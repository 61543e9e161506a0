package props

import (
	"os"
	"testing"
	"time"
)

// TestKnown_CloseLeavesGiveBack is a small breach of NothingLeft in the product, which machine.nothingRuns therefore excuses. A renewal
// is confirmed after the end of trust, here because the worker was stopped meanwhile: the lease is lost, and given back by one delete. Close
// does not know of that delete: it returns while it is under way, and leaves its goroutine and its timer behind for up to the bound of one
// call. LEASEHOLD_PROPS_KNOWN=1 shows it.
func TestKnown_CloseLeavesGiveBack(t *testing.T) {
	if os.Getenv("LEASEHOLD_PROPS_KNOWN") == "" {
		t.Skip("known breach; LEASEHOLD_PROPS_KNOWN=1 runs it")
	}
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

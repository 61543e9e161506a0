package props

import (
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/leasehold-go/leasehold/lease"
)

// register is what the lease guards: a counter in some other store. A write replaces what is there. With the check it keeps the highest token
// that it has seen, of a read or of a write, and refuses a write that carries a lower one.
type register struct {
	check   bool
	highest lease.Token

	version  int
	accepted []lease.Token
	refused  int
	lost     int // writes that replaced a version which their writer had not read
}

func (r *register) read(token lease.Token) int {
	r.highest = max(r.highest, token)
	return r.version
}

func (r *register) write(token lease.Token, seen int) bool {
	if r.check && token < r.highest {
		r.refused++
		return false
	}
	r.highest = max(r.highest, token)
	r.accepted = append(r.accepted, token)
	if seen != r.version {
		r.lost++
	}
	r.version++
	return true
}

// Five workers share a register and are stopped, for up to three TTL, between their check of the lease and their write. With the check of
// tokens the register never takes a decreasing token and loses no update. Without it the same cases lose some: the pauses do bite.
func TestProps_FencedRegister(t *testing.T) {
	var cases, lost, refused atomic.Int64
	simulate(t, func(t *rapid.T, started func(*sim)) {
		ppm := rapid.SliceOfN(rates, 5, 5).Draw(t, "ppm")
		pauses := rapid.SliceOfN(rapid.SampledFrom([]time.Duration{0, 0, 100, 500, 990, 1000, 1010, 2000, 3000}), 20, 20).Draw(t, "pauses")
		queue := rapid.Bool().Draw(t, "queue")
		for _, check := range []bool{true, false} {
			s := newSim(t, time.Second, 1)
			started(s)
			r := &register{check: check}
			func() {
				defer s.teardown()
				fence(s, r, ppm, pauses, queue)
			}()
			if !check {
				lost.Add(int64(r.lost))
				continue
			}
			refused.Add(int64(r.refused))
			for i := 1; i < len(r.accepted); i++ {
				if r.accepted[i] < r.accepted[i-1] {
					s.fail("FencedRegister", "token %d was accepted after %d", r.accepted[i], r.accepted[i-1])
				}
			}
			if r.lost > 0 {
				s.fail("FencedRegister", "%d updates were lost", r.lost)
			}
		}
		cases.Add(1)
	})
	t.Logf("%d cases: %d writes refused; without the check %d updates lost", cases.Load(), refused.Load(), lost.Load())
	if cases.Load() >= 20 && lost.Load() == 0 {
		t.Error("invariant FencedRegister: without the check no update was lost: the cases prove nothing")
	}
}

// writer is one worker's loop: lock, check, read, be stopped, write, release.
type writer struct {
	w      *worker
	call   *call
	hd     *hold
	seen   int
	asleep bool
	wake   time.Duration
	pauses []time.Duration // in milliseconds, one for each write to come
}

func fence(s *sim, r *register, ppm []int64, pauses []time.Duration, queue bool) {
	o := options{ttl: s.base, every: s.base / 3}
	var writers []*writer
	for i, p := range ppm {
		n := len(pauses) / len(ppm)
		writers = append(writers, &writer{w: s.addWorker(p, 0, uint64(i+2), queue, o), pauses: pauses[i*n : (i+1)*n]})
	}
	for busy := true; busy; {
		busy = false
		next := s.now + s.base/10
		for _, x := range writers {
			x.turn(s, r)
			busy = busy || len(x.pauses) > 0 || x.hd != nil
			if x.asleep {
				next = min(next, x.wake)
			}
		}
		s.runTo(next)
		if s.now > time.Hour {
			s.fail("Liveness", "the writers do not get on")
		}
	}
	for _, c := range s.hist.calls {
		c.ctxEnds = true
		c.cancel()
	}
	for _, w := range s.workers {
		s.close(w)
	}
	s.pass(2 * s.base)
	s.judge()
	s.finished = true
}

// turn does the next thing that x does.
func (x *writer) turn(s *sim, r *register) {
	switch {
	case x.asleep && s.now < x.wake:
	case x.asleep:
		valid := x.hd.control.State() == lease.Held && s.now < x.w.clk.trueAt(x.hd.control.Trust())
		ok := r.write(x.hd.token, x.seen)
		s.note(x.w.name, "writes with token %d: %v", x.hd.token, ok)
		if valid && !ok {
			s.fail("FencedRegister", "the write of a valid holder, token %d, was refused", x.hd.token)
		}
		s.resume(x.w)
		s.release(x.hd)
		x.asleep, x.hd, x.pauses = false, nil, x.pauses[1:]
	case x.call == nil && len(x.pauses) > 0:
		x.call = s.lock(x.w, s.names[0], x.w.opts, lockWay, 0, false)
	case x.call != nil && x.call.over:
		x.hd, x.call = x.call.hold, nil
		if x.hd == nil {
			return
		}
		if !x.hd.h.Valid() {
			s.release(x.hd)
			x.hd = nil
			return
		}
		x.seen = r.read(x.hd.token)
		x.asleep, x.wake = true, s.now+x.pauses[0]*time.Millisecond
		s.note(x.w.name, "reads with token %d, and writes in %v", x.hd.token, x.wake-s.now)
		s.pause(x.w)
	}
}

package mutex_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/benbjohnson/clock"

	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/lease/leasetest"
	"github.com/leasehold-go/leasehold/mutex"
)

// realNow has a monotonic reading, because it was read outside any bubble.
var realNow = time.Now()

// machineClock is what a machine shows: a monotonic clock, which is the Mock's, and a wall clock, which somebody can set.
type machineClock struct {
	*clock.Mock
	step time.Duration // of the wall clock, in whole seconds; changed only while everybody is blocked
}

func (c *machineClock) Now() time.Time {
	return stepWall(realNow.Add(c.Mock.Now().Sub(time.Unix(0, 0))), c.step)
}
func (c *machineClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
func (c *machineClock) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }

// stepWall returns t with its wall reading moved by d and its monotonic reading as it was. A Time with both has in its first word one
// bit that is set, 33 bits of seconds, and 30 of nanoseconds.
func stepWall(t time.Time, d time.Duration) time.Time {
	wall := (*uint64)(unsafe.Pointer(&t))
	*wall += uint64(d/time.Second) << 30
	return t
}

func TestStepWall(t *testing.T) {
	for _, d := range []time.Duration{time.Hour, -time.Hour} {
		got := stepWall(realNow, d)
		if got.Sub(realNow) != 0 || got.Round(0).Sub(realNow.Round(0)) != d {
			t.Fatalf("stepped by %v: monotonic %v, wall %v", d, got.Sub(realNow), got.Round(0).Sub(realNow.Round(0)))
		}
	}
}

func TestC62_WallClocksThatDiffer(t *testing.T) {
	inBubble(t, func(w *world) {
		ahead, behind := &machineClock{w.clk, time.Hour}, &machineClock{w.clk, -time.Hour}
		a := w.lock("x", mutex.WithClock(ahead))
		b := w.waiting(w.locker(w.store), w.ctx, "x", mutex.WithClock(behind))
		c := w.waiting(w.locker(leasetest.WithoutQueue(w.store)), w.ctx, "x", mutex.WithClock(behind), mutex.WithRand(seeded(1)))
		w.until(10*T + R/2)
		w.wantHeld(a)
		w.stillWaiting(b)
		w.stillWaiting(c)
		w.faults.Partition()
		w.until(11*T - 1)
		w.wantLost(a, lease.Expired)
		w.stillWaiting(b)
		w.advance(1)
		h := w.granted(b)
		w.wantHeld(h)
		w.release(h)
		w.advance(P)
		w.release(w.granted(c))
	})
}

// A step of the wall clock loses nothing and costs at most one renewal more, even where somebody asks Valid all the time.
func TestC63_WallClockSteps(t *testing.T) {
	for _, asked := range []bool{false, true} {
		t.Run(fmt.Sprint("AskedValid/", asked), func(t *testing.T) {
			inBubble(t, func(w *world) {
				machine := &machineClock{Mock: w.clk}
				w.noStorm()
				h := w.lock("x", mutex.WithClock(machine))
				waiter := w.waiting(w.locks, w.ctx, "x", mutex.WithClock(machine), mutex.WithWait(7*R))
				for i, step := range []time.Duration{time.Hour, 0, -time.Hour, 0, time.Hour} {
					w.until(time.Duration(i)*3*R + R/2)
					before := len(w.sent(leasetest.OpRenew, "x"))
					machine.step = step
					for range 30 {
						if asked {
							h.Valid()
						}
						w.advance(R / 10)
					}
					if !h.Valid() || h.State() != lease.Held || isClosed(h.Lost()) {
						w.Fatalf("after a step to %v: %s", step, describe(h))
					}
					if n := len(w.sent(leasetest.OpRenew, "x")) - before; n > 3+1 {
						w.Errorf("%d renewals in 3 periods after a step to %v, want at most one more than 3", n, step)
					}
				}
				r := w.result(waiter)
				wantMatch(w, r.err, is(lease.ErrHeld))
				if r.at != 7*R {
					w.Errorf("waited %v, want %v", r.at, 7*R)
				}
			})
		})
	}
}

// A wall clock that is set forward makes Valid false until the store has said that the lease is alive.
func TestC63_StepAheadIsSettledByOneRenewal(t *testing.T) {
	inBubble(t, func(w *world) {
		machine := &machineClock{Mock: w.clk}
		h := w.lock("x", mutex.WithClock(machine))
		w.until(R / 2)
		machine.step = time.Hour
		if h.Valid() || h.Remaining() != 0 {
			w.Error("valid although the wall clock says that the trust is over")
		}
		w.wantSent(leasetest.OpRenew, "x", 1)
		w.wantHeld(h)
		w.until(R/2 + R - 1)
		w.wantSent(leasetest.OpRenew, "x", 1)
		w.advance(1)
		w.wantSent(leasetest.OpRenew, "x", 2)
	})
}

// A step that comes at the very instant of a renewal is settled as well: the next renewal is sent at the same monotonic time.
func TestC63_StepAtTheInstantOfARenewal(t *testing.T) {
	inBubble(t, func(w *world) {
		w.noStorm()
		machine := &machineClock{Mock: w.clk}
		h := w.lock("x", mutex.WithClock(machine))
		synctest.Wait()
		machine.step = time.Hour
		h.Valid()
		w.until(3*R + R/2)
		w.wantHeld(h)
		if n := len(w.sent(leasetest.OpRenew, "x")); n > 4 {
			w.Errorf("%d renewals in 3 periods", n)
		}
	})
}

// A lease that runs longer than its renewals ask for is settled as well: they do not move the end of trust.
func TestC63_StepWhileTheLeaseRunsLonger(t *testing.T) {
	inBubble(t, func(w *world) {
		w.noStorm()
		machine := &machineClock{Mock: w.clk}
		h := w.lock("x", mutex.WithClock(machine))
		for _, ttl := range []time.Duration{time.Hour, T} {
			if err := h.RenewFor(w.ctx, ttl); err != nil {
				w.Fatal(err)
			}
		}
		w.until(R / 2)
		before := len(w.sent(leasetest.OpRenew, "x"))
		machine.step = 2 * time.Hour
		h.Valid()
		w.advance(3 * R)
		w.wantHeld(h)
		if n := len(w.sent(leasetest.OpRenew, "x")) - before; n > 4 {
			w.Errorf("%d renewals in 3 periods", n)
		}
	})
}

// noStorm makes the store silent after a thousand calls: a Locker that sends without end would hang the test.
func (w *world) noStorm() {
	var calls atomic.Int64
	w.faults.Plan(func(leasetest.Op, string) leasetest.Fault {
		if calls.Add(1) > 1000 {
			return leasetest.Fault{Action: leasetest.Hang}
		}
		return leasetest.Fault{}
	})
}

// suspend is a world in which the Locker's machine can be suspended: its monotonic clock stops, and its wall clock and the store go on.
type suspend struct {
	*world
	machine *machineClock
	l       *mutex.Locker
}

func inSuspend(t *testing.T, f func(w *suspend), opts ...mutex.Option) {
	inBubble(t, func(w *world) {
		s := &suspend{world: w, machine: &machineClock{Mock: clock.NewMock()}}
		s.l = w.locker(w.net, append(opts, mutex.WithClock(s.machine))...)
		f(s)
		if err := s.l.Close(w.ctx); err != nil {
			w.Error(err)
		}
	})
}

func (s *suspend) run(d time.Duration) {
	s.advance(d)
	s.machine.Add(d)
}

func (s *suspend) sleep(d time.Duration) {
	s.advance(d)
	s.machine.step += d
}

func TestSuspend_ValidIsFalseAtOnce(t *testing.T) {
	inSuspend(t, func(s *suspend) {
		h := s.lockOn(s.l, "x")
		s.run(time.Second)
		s.sleep(time.Hour)
		if h.Valid() || h.Remaining() != 0 {
			t.Error("valid after an hour of suspend")
		}
		s.wantSent(leasetest.OpRenew, "x", 1) // Valid has asked for a look
		s.wantLost(h, lease.Missing)
		s.run(T)
		s.wantSent(leasetest.OpRenew, "x", 1)
	})
}

func TestSuspend_NextLookDecides(t *testing.T) {
	inSuspend(t, func(s *suspend) {
		h := s.lockOn(s.l, "x")
		s.run(time.Second)
		s.sleep(time.Hour)
		other := s.lockOn(s.locker(s.store), "x", mutex.WithoutRenewal())
		s.run(R - time.Second - 1)
		s.wantSent(leasetest.OpRenew, "x", 0)
		s.run(1)
		s.wantSent(leasetest.OpRenew, "x", 1)
		s.wantLost(h, lease.Taken)
		s.wantHolder("x", other)
		s.release(other)
	})
}

func TestSuspend_ShortOneLosesNothing(t *testing.T) {
	inSuspend(t, func(s *suspend) {
		h := s.lockOn(s.l, "x")
		for range 20 {
			s.run(R / 2)
			s.sleep(R / 2)
			s.wantHeld(h)
		}
	})
}

// minRetryGap is the least time between two tries to renew.
const minRetryGap = T / 100

// A store that does not answer settles nothing: not valid, and lost when the monotonic clock says so, asked at the pace of retries.
func TestSuspend_WithoutAnAnswer(t *testing.T) {
	inSuspend(t, func(s *suspend) {
		h := s.lockOn(s.l, "x")
		s.run(time.Second)
		s.sleep(time.Hour)
		s.faults.Plan(failing(leasetest.OpRenew, fail(nil)))
		for range 28 {
			if h.Valid() {
				t.Fatal("valid")
			}
			s.run(time.Second)
		}
		s.run(time.Second)
		s.wantLost(h, lease.Expired)
		if n := len(s.sent(leasetest.OpRenew, "x")); n < 3 || n > int(T/minRetryGap) {
			t.Errorf("%d tries, want some at the pace of retries", n)
		}
	})
}

// Client clocks that run fast or slow by 1 %, while the store expires in true time.
func TestC64_RatesThatDiffer(t *testing.T) {
	for _, perMille := range []time.Duration{990, 999, 1000, 1010} {
		for _, ttl := range []time.Duration{lease.MinTTL, time.Second, T, 24 * time.Hour} {
			t.Run(fmt.Sprint(perMille, "/", ttl), func(t *testing.T) {
				inBubble(t, func(w *world) {
					mine := clock.NewMock()
					h := w.lock("x", mutex.WithTTL(ttl), mutex.WithClock(mine))
					w.faults.Plan(failing(leasetest.OpRenew, fail(nil)))
					w.advance(ttl - 1) // the record is about to expire
					mine.Add((ttl - 1) * perMille / 1000)
					w.wantLost(h, lease.Expired)
					if _, ok := w.holder("x"); !ok {
						w.Error("the record is gone before its time")
					}
				})
			})
		}
	}
}

const rounds67 = 1000

// What mutation 67 must break: when Release has returned, no timer of the handle is set.
func TestC67_NoTimerAfterRelease(t *testing.T) {
	inBubble(t, func(w *world) {
		broken := 0
		for range rounds67 {
			before := w.timers()
			h := w.lock("x")
			if w.timers() == before {
				w.Fatal("no timer is set for a held lease")
			}
			w.release(h)
			if w.timers() != before {
				broken++
			}
		}
		if broken != 0 {
			w.Errorf("a timer was left in %d of %d rounds", broken, rounds67)
		}
		calls := len(w.faults.Calls())
		w.advance(100 * T)
		if n := len(w.faults.Calls()) - calls; n != 0 {
			w.Errorf("%d calls after the last release", n)
		}
	})
}

// The test above proves something only if it fails when the supervisor forgets to stop its timer.
func TestC67_MutationIsCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the package once more")
	}
	const stop = "\tif s.bell != nil {\n\t\ts.bell.Stop()\n\t}\n"
	original, err := filepath.Abs("../renewal/supervisor.go")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(original)
	if err != nil {
		t.Skip(err)
	}
	if strings.Count(string(source), stop) != 1 {
		t.Fatalf("%s has changed: teach this test where the timer is stopped", original)
	}
	dir := t.TempDir()
	mutant, overlay := filepath.Join(dir, "supervisor.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{original: mutant}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{mutant: []byte(strings.Replace(string(source), stop, "", 1)), overlay: replace} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-overlay", overlay, "-run", "^TestC67_NoTimerAfterRelease$", ".")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("the mutant passes:\n%s", out)
	}
	if want := fmt.Sprintf("a timer was left in %d of %d rounds", rounds67, rounds67); !strings.Contains(string(out), want) {
		t.Errorf("got %v and\n%s\nwant %q", err, out, want)
	}
}

// One advance moves the Locker's time and the store's: there is only one clock in a world.
func TestC68_OneClockForAll(t *testing.T) {
	inBubble(t, func(w *world) {
		h := w.lock("x", mutex.WithoutRenewal())
		w.advance(T - time.Millisecond)
		w.wantHolder("x", h)
		w.wantLost(h, lease.Expired)
		w.advance(time.Millisecond)
		w.wantFree("x")
		synctest.Wait()
		if w.now() != T {
			w.Errorf("the clock moved by %v, want %v", w.now(), T)
		}
	})
}

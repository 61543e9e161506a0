package props

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/leasehold-go/leasehold/lease"
)

// machine is the actions of the state machine. Each draws what it needs and skips when there is nothing to act on.
type machine struct {
	*sim
	t       *rapid.T
	profile profile
	drops   int
	longest time.Duration // the longest lease that anybody may have asked for
	slowest time.Duration // the longest that a message may be on its way
}

// profile says what may happen in a case.
type profile struct {
	faults  bool // links are slow, cut, lose and repeat
	pauses  bool
	crashes bool
	drops   bool // a handle is dropped: costs a collection
	thefts  bool // a third party deletes records
	other   bool // RenewFor asks for another length
}

// maxPollGap is the longest time, as documented, between two attempts of a waiter without a queue.
const maxPollGap = time.Second

// The profiles, narrow ones too: the fewer kinds of trouble, the deeper a case gets into each.
var (
	calm    = profile{}
	pauses  = profile{pauses: true}
	network = profile{faults: true, other: true}
	losses  = profile{crashes: true, drops: true, thefts: true}
	wild    = profile{faults: true, pauses: true, crashes: true, drops: true, thefts: true, other: true}
)

// rates at which workers' clocks run, the bounds included.
var rates = rapid.OneOf(rapid.SampledFrom([]int64{0, -10_000, 10_000, -1_000, 1}), rapid.Int64Range(-10_000, 10_000))

func newMachine(t *rapid.T, p profile) *machine {
	base := rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Millisecond, 100 * time.Millisecond, 3 * time.Second, 10 * time.Second}).Draw(t, "TTL")
	m := &machine{t: t, sim: newSim(t, base, rapid.IntRange(1, 3).Draw(t, "names")), profile: p, longest: base}
	m.netFirst = rapid.Bool().Draw(t, "messages first")
	m.storeFirst = rapid.Bool().Draw(t, "store first")
	m.burst = rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "burst")
	m.dirtyLeave = p.faults && rapid.Bool().Draw(t, "waiters leave without a word")
	m.slowest = base
	for range rapid.IntRange(2, 4).Draw(t, "workers") {
		skew := rapid.SampledFrom([]time.Duration{0, time.Hour, -time.Hour}).Draw(t, "skew")
		seed := rapid.OneOf(rapid.Uint64Range(0, 1), rapid.Uint64()).Draw(t, "jitter")
		m.addWorker(rates.Draw(t, "ppm"), skew, seed, rapid.IntRange(0, 3).Draw(t, "queues") > 0, m.options())
	}
	return m
}

// options draws how a lease is taken and kept.
func (m *machine) options() options {
	t := m.t
	o := options{ttl: m.base}
	if rapid.IntRange(0, 3).Draw(t, "other TTL") == 0 {
		o.ttl = rapid.SampledFrom([]time.Duration{max(m.base/2, lease.MinTTL), 2 * m.base}).Draw(t, "ttl")
	}
	o.every = rapid.SampledFrom([]time.Duration{o.ttl / 3, o.ttl / 2, max(o.ttl/10, time.Millisecond)}).Draw(t, "every")
	switch rapid.IntRange(0, 9).Draw(t, "how it is kept") {
	case 9:
		o.noRenewal, o.every = true, 0
	case 8:
		o.strict = true
	case 7:
		o.maxHold = rapid.SampledFrom([]time.Duration{o.ttl / 2, 2 * o.ttl}).Draw(t, "max hold")
	}
	m.longest = max(m.longest, o.ttl)
	return o
}

func (m *machine) actions() map[string]func(*rapid.T) {
	a := map[string]func(*rapid.T){
		"lock":        m.actLock,
		"lock 2":      m.actLock,
		"lock 3":      m.actLock,
		"lock 4":      m.actLock,
		"renew":       m.actRenew,
		"release":     m.actRelease,
		"cancel":      m.actCancel,
		"advance":     m.actAdvance,
		"advance 2":   m.actAdvance,
		"advance bit": m.actAdvanceBit,
		"to an edge":  m.actEdge,
		"to an event": m.actNext,
		"race":        m.actRace,
		"try again":   m.actReleaseAgain,
		"close":       m.actClose,
	}
	add := func(ok bool, name string, f func(*rapid.T)) {
		if ok {
			a[name] = f
		}
	}
	p := m.profile
	add(p.faults || p.pauses, "slow", m.actSlow)
	add(p.faults, "release unheard", m.actReleaseUnheard)
	add(p.pauses, "pause over", m.actPauseOver)
	add(p.faults, "cut", m.actCut)
	add(p.faults, "fate", m.actFate)
	add(p.faults, "fates", m.actFate)
	add(p.pauses, "pause", m.actPause)
	add(p.pauses, "resume", m.actResume)
	add(p.crashes, "crash", m.actCrash)
	add(p.drops, "drop", m.actDrop)
	add(p.thefts, "delete", m.actSteal)
	return a
}

// part draws a part of the base TTL.
func (m *machine) part(label string, parts ...float64) time.Duration {
	return time.Duration(rapid.SampledFrom(parts).Draw(m.t, label) * float64(m.base))
}

func (m *machine) worker(ok func(*worker) bool) *worker {
	list := slices.DeleteFunc(slices.Clone(m.workers), func(w *worker) bool { return w.paused || !ok(w) })
	if len(list) == 0 {
		m.t.Skip("no such worker")
	}
	return rapid.SampledFrom(list).Draw(m.t, "worker")
}

func (m *machine) hold(ok func(*hold) bool) *hold {
	list := slices.DeleteFunc(slices.Clone(m.hist.holds), func(h *hold) bool { return h.h == nil || h.w.paused || !ok(h) })
	if len(list) == 0 {
		m.t.Skip("no such handle")
	}
	return rapid.SampledFrom(list).Draw(m.t, "handle")
}

func whichever[T *worker | *hold](T) bool { return true }

func (m *machine) actLock(t *rapid.T) {
	live := 0
	for _, c := range m.hist.calls {
		if !c.over || c.hold != nil && !c.hold.state.Terminal() {
			live++
		}
	}
	if live >= 8 {
		t.Skip("enough")
	}
	w := m.worker(whichever)
	name := rapid.SampledFrom(m.names).Draw(t, "name")
	o := w.opts
	if rapid.IntRange(0, 2).Draw(t, "options") == 0 {
		o = m.options()
	}
	how := rapid.SampledFrom([]way{lockWay, lockWay, waitWay, deadlineWay, tryWay}).Draw(t, "way")
	var wait time.Duration
	if how == waitWay || how == deadlineWay {
		wait = m.part("wait", 0.1, 0.5, 1, 2)
	}
	m.lock(w, name, o, how, wait, rapid.Bool().Draw(t, "lazy"))
}

func (m *machine) actRenew(t *rapid.T) {
	hd := m.hold(whichever)
	var ttl, bound time.Duration
	if m.profile.other && rapid.Bool().Draw(t, "another length") {
		ttl = max(m.part("length", 0.5, 1, 2, 3), lease.MinTTL)
		m.longest = max(m.longest, ttl)
	}
	if rapid.IntRange(0, 3).Draw(t, "bounded") == 0 {
		bound = m.part("bound", 0.05, 0.5)
	}
	m.renew(hd, ttl, bound)
}

func (m *machine) actRelease(*rapid.T) { m.release(m.hold(whichever)) }

func (m *machine) actCancel(t *rapid.T) {
	var list []*call
	for _, c := range m.hist.calls {
		if !c.cancelled && !c.w.paused && (!c.over || c.hold != nil && !c.hold.state.Terminal()) {
			list = append(list, c)
		}
	}
	if len(list) == 0 {
		t.Skip("no call to cancel")
	}
	c := rapid.SampledFrom(list).Draw(t, "call")
	c.cancelled, c.ctxEnds = true, true
	m.note(c.w.name, "#%d: its context is cancelled", c.id)
	m.start(c.cancel)
}

// actRace lets the first in the queue give up, and the holder release, at one instant.
func (m *machine) actRace(*rapid.T) {
	m.atRest()
	first := func(name string) *call {
		r, ok := look(m.mem, name)
		if !ok || len(r.queue) == 0 {
			return nil
		}
		return m.byOwner[r.queue[0]]
	}
	hd := m.hold(func(h *hold) bool {
		c := first(h.name)
		return !h.state.Terminal() && c != nil && !c.over && !c.cancelled && !c.w.paused
	})
	c := first(hd.name)
	c.cancelled, c.ctxEnds = true, true
	m.note(c.w.name, "#%d: its context is cancelled", c.id)
	m.start(c.cancel)
	m.burst, hd.w.link.there = 4, 0
	m.release(hd)
}

// actReleaseUnheard releases a handle, and the reply is lost.
func (m *machine) actReleaseUnheard(*rapid.T) {
	hd := m.hold(func(h *hold) bool { return !h.state.Terminal() })
	m.atRest()
	l := &hd.w.link
	l.fates = append([]fate{{kind: replyLost, there: l.there, tell: m.part("told after", 0, 0.01, 0.2)}}, l.fates...)
	m.release(hd)
}

// actReleaseAgain releases a handle whose release has failed before.
func (m *machine) actReleaseAgain(*rapid.T) {
	m.release(m.hold(func(h *hold) bool {
		return h.state == lease.Released && slices.ContainsFunc(m.hist.users, func(u *userCall) bool {
			return u.hold == h && u.what == "Release" && u.over && u.err != nil && !errors.Is(u.err, lease.ErrLost)
		})
	}))
}

func (m *machine) actAdvance(*rapid.T) { m.pass(m.part("time", 0.25, 0.5, 1, 1.5)) }

func (m *machine) actAdvanceBit(*rapid.T) { m.pass(m.part("time", 0, 0.01, 0.05, 0.1)) }

// actEdge goes to the instant at which the trust of a handle, or its record, ends, or to the nanosecond before or after.
func (m *machine) actEdge(t *rapid.T) {
	hd := m.hold(func(h *hold) bool { return !h.state.Terminal() })
	edge := hd.w.clk.trueAt(hd.control.Trust())
	if rapid.Bool().Draw(t, "the record's") {
		edge = m.expiry[hd.key()]
	}
	m.runTo(max(m.now, edge+time.Duration(rapid.IntRange(-1, 1).Draw(t, "off"))))
}

// actNext goes to the next event, and no further.
func (m *machine) actNext(*rapid.T) {
	m.steps = 0
	m.settle()
	for m.isDue() && m.step(m.now) {
		m.settle()
	}
	m.step(m.now + 2*m.base)
	m.settle()
}

func (m *machine) actClose(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "really") != 0 {
		t.Skip("rare")
	}
	m.close(m.worker(func(w *worker) bool { return !w.closeCalled }))
}

func (m *machine) actSlow(*rapid.T) {
	w := m.worker(whichever)
	w.link.there = m.part("there", 0, 0.001, 0.05, 0.2, 0.4)
	w.link.back = m.part("back", 0, 0.001, 0.05, 0.2, 0.4)
	m.note(w.name, "is %v and %v away", w.link.there, w.link.back)
}

func (m *machine) actCut(t *rapid.T) {
	w := m.worker(func(w *worker) bool { return !w.crashed })
	w.link.cut = rapid.SampledFrom([]cut{open, noRequests, noReplies}).Draw(t, "cut")
	w.link.tell = m.tell()
	m.note(w.name, "link: %v, told after %v", w.link.cut, w.link.tell)
}

// tell draws after how long the sender of a lost message hears of it: never, or soon.
func (m *machine) tell() time.Duration {
	if rapid.Bool().Draw(m.t, "hangs") {
		return -1
	}
	return m.part("told after", 0, 0.01, 0.2)
}

func (m *machine) actFate(t *rapid.T) {
	w := m.worker(func(w *worker) bool { return !w.crashed && len(w.link.fates) < 4 })
	f := fate{
		kind:  rapid.SampledFrom([]fateKind{requestLost, replyLost, refused, duplicated, deaf, fine}).Draw(t, "fate"),
		there: w.link.there, back: w.link.back, tell: m.tell(),
	}
	switch f.kind {
	case refused:
		f.tell = 0
	case duplicated:
		f.again = m.part("again", 0, 0.1, 0.6, 1)
	case deaf:
		f.back = m.part("deaf for", 0.5, 1.1, 2)
		m.slowest = max(m.slowest, f.back)
	case fine:
		f.there, f.back = m.part("there", 0, 0.1, 0.5, 1), m.part("back", 0, 0.1, 0.5, 1)
	}
	w.link.fates = append(w.link.fates, f)
	m.note(w.name, "the next request: %v, %v and %v away, told after %v, again after %v", f.kind, f.there, f.back, f.tell, f.again)
}

func (m *machine) actPause(*rapid.T) {
	w := m.worker(whichever)
	m.atRest() // a goroutine that has begun to run cannot be stopped
	m.pause(w)
}

// actPauseOver pauses a worker while a renewal of its is under way, and lets it go on around the end of that lease's trust.
func (m *machine) actPauseOver(*rapid.T) {
	hd := m.hold(func(h *hold) bool { return !h.state.Terminal() && !h.opts.noRenewal })
	underWay := func() bool {
		last := len(hd.reqs) - 1
		return hd.state.Terminal() || last >= 0 && hd.reqs[last].op == opRenew && !hd.reqs[last].over
	}
	m.runUntil(hd.opts.every+1, underWay)
	if hd.state.Terminal() {
		return
	}
	m.atRest()
	m.pause(hd.w)
	m.runTo(max(m.now, hd.w.clk.trueAt(hd.control.Trust())+m.part("after", 0, 0.01, 0.1, -0.01)))
	m.resume(hd.w)
}

func (m *machine) actResume(t *rapid.T) {
	list := slices.DeleteFunc(slices.Clone(m.workers), func(w *worker) bool { return !w.paused })
	if len(list) == 0 {
		t.Skip("nobody is paused")
	}
	m.resume(rapid.SampledFrom(list).Draw(t, "worker"))
}

func (m *machine) actCrash(t *rapid.T) {
	if rapid.IntRange(0, 2).Draw(t, "really") != 0 {
		t.Skip("rare")
	}
	w := m.worker(func(w *worker) bool { return !w.crashed })
	w.crashed = true
	w.link.tell = m.tell()
	m.note(w.name, "is cut off for ever, told after %v", w.link.tell)
}

func (m *machine) actDrop(t *rapid.T) {
	if m.drops >= 2 {
		t.Skip("enough")
	}
	m.settle()
	hd := m.hold(func(h *hold) bool { return h.busy == 0 && !h.state.Terminal() })
	m.drops++
	m.drop(hd)
}

func (m *machine) actSteal(t *rapid.T) {
	if rapid.IntRange(0, 2).Draw(t, "really") != 0 {
		t.Skip("rare")
	}
	m.atRest()
	if !m.steal(rapid.SampledFrom(m.names).Draw(t, "name")) {
		t.Skip("nothing to delete")
	}
}

// atRest does all that is due at this instant.
func (m *machine) atRest() { m.runTo(m.now) }

// run is a whole case: actions, then healing, then the end, then the invariants of the history.
func (m *machine) run() {
	for range rapid.IntRange(1, 4).Draw(m.t, "locks first") {
		m.actLock(m.t)
	}
	m.t.Repeat(m.actions())
	m.heal()
	m.shutdown()
	m.judge()
	m.finished = true
}

// heal mends all links and lets everybody go on. Every holder releases, and so does whoever is granted a lease from now on.
// Then every waiter must be served within a bound.
func (m *machine) heal() {
	s := m.sim
	m.atRest()
	waiters := 0
	for _, w := range s.workers {
		if w.paused {
			s.resume(w)
		}
		if !w.crashed {
			w.link = link{there: m.base / 100, back: m.base / 100, tell: -1}
		}
	}
	m.note("sim", "all is mended")
	m.atRest()
	s.mu.Lock()
	s.autoRelease = true
	s.mu.Unlock()
	for _, hd := range s.hist.holds {
		if hd.h != nil && !hd.w.crashed && !hd.state.Terminal() {
			s.release(hd)
		}
	}
	for _, c := range s.hist.calls {
		if !c.over {
			waiters++
		}
	}
	served := func() bool {
		for _, c := range s.hist.calls {
			if !c.over && !c.w.crashed {
				return false
			}
		}
		for _, u := range s.hist.users {
			if !u.over && !u.hold.w.crashed {
				return false
			}
		}
		return true
	}
	from := s.now
	// What is left of any record, of any message on its way, and of the places of dead waiters; then for each waiter its own wait to look, or
	// the claim of one that does not answer, and the way there and back.
	bound := 2*m.longest + 2*m.slowest + m.base +
		time.Duration(waiters+1)*(maxPollGap+lease.ClaimTTL(m.longest)+m.base)
	if !s.runUntil(bound*101/100, served) {
		for _, c := range s.hist.calls {
			if !c.over && !c.w.crashed {
				s.fail("Liveness", "%s #%d of %s was not served within %v of %v", c.kind, c.id, c.w.name, bound, from)
			}
		}
	}
	for _, c := range s.hist.calls {
		if from < c.returned.at && c.err != nil && !c.w.crashed && !c.cancelled && c.wait == 0 && !c.closed && c.kind != "TryLock" {
			s.fail("Liveness", "#%d ended without a lease: %v", c.id, c.err)
		}
	}
}

// shutdown closes all Lockers. Nothing of them may be left, nor in the store after one TTL more.
func (m *machine) shutdown() {
	s := m.sim
	for _, c := range s.hist.calls {
		c.cancelled = c.cancelled || !c.over
		c.ctxEnds = true
		c.cancel()
	}
	for _, w := range s.workers {
		if !w.closeCalled {
			s.close(w)
		}
	}
	allClosed := func() bool {
		for _, w := range s.workers {
			if w.closed == nil {
				return false
			}
		}
		for _, u := range s.hist.users {
			if !u.over {
				return false
			}
		}
		return true
	}
	if bound := 4*lease.CallBound(m.longest) + m.base; !s.runUntil(bound*101/100, allClosed) {
		s.fail("NothingLeft", "Close, or a Release before it, does not return within %v", bound)
	}
	for _, w := range s.workers {
		if w.closeErr != nil && !w.crashed && !m.profile.faults && !m.profile.pauses {
			s.fail("NothingLeft", "%s: Close: %v", w.name, w.closeErr)
		}
	}
	m.nothingRuns("once the Lockers are closed")
	quiet := func() bool {
		for _, rq := range s.hist.reqs {
			if !rq.over {
				return false
			}
		}
		return len(s.net) == 0
	}
	s.runUntil(4*m.base+2*m.slowest+2*m.longest, quiet)
	m.nothingRuns("when the last message has arrived")
	s.pass(m.longest)
	for _, name := range s.names {
		if r, ok := look(s.mem, name); ok && s.store.Now().Before(r.expires) {
			s.fail("NothingLeft", "the store still has %+v", r)
		}
	}
	if n := s.store.pending(); n > 0 {
		s.fail("NothingLeft", "%d timers are left on the store's clock", n)
	}
	if text := strangers(s.goroutines); text != "" {
		s.fail("NothingLeft", "goroutines are left:\n%s", text)
	}
}

// nothingRuns checks that closed Lockers have no handle, no call and no timer. A renewal that does not listen to its context is the one
// thing that they may leave behind, with the delete that gives back what it brings.
func (m *machine) nothingRuns(when string) {
	s := m.sim
	for _, c := range s.hist.calls {
		if !c.over {
			s.fail("NothingLeft", "#%d still waits %s", c.id, when)
		}
	}
	for _, hd := range s.hist.holds {
		if !hd.control.State().Terminal() {
			s.fail("NothingLeft", "#%d is still held %s", hd.id, when)
		}
	}
	for _, u := range s.hist.users {
		if !u.over {
			s.fail("NothingLeft", "%s of #%d has not returned %s", u.what, u.hold.id, when)
		}
	}
	behind := 0
	for _, rq := range s.hist.reqs {
		switch {
		case rq.over:
		case rq.fate.kind == deaf, rq.op == opRelease && rq.call.deaf():
			behind++
		default:
			s.fail("NothingLeft", "r%d %s of #%d is still under way %s", rq.id, rq.op, rq.callID(), when)
		}
	}
	for _, w := range s.workers {
		if n := w.clk.pending(); n > 0 && behind == 0 {
			s.fail("NothingLeft", "%d timers are left on the clock of %s %s", n, w.name, when)
		}
	}
}

// judge checks the invariants of the whole history.
func (s *sim) judge() {
	for _, inv := range overHistory {
		if err := inv.holds(s, &s.hist); err != nil {
			s.fail(inv.name, "%v", err)
		}
	}
}

func (o options) String() string {
	return fmt.Sprintf("{ttl %v every %v strict %v max hold %v}", o.ttl, o.every, o.strict, o.maxHold)
}

func (w *worker) GoString() string { return w.name }

func (h *hold) GoString() string { return fmt.Sprintf("#%d", h.id) }

func (c *call) GoString() string { return fmt.Sprintf("#%d", c.id) }

// deaf reports whether a renewal of c did not listen to its context.
func (c *call) deaf() bool {
	return slices.ContainsFunc(c.reqs, func(rq *request) bool { return rq.fate.kind == deaf })
}

package props

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/leasehold-go/leasehold/backends/memory"
	"github.com/leasehold-go/leasehold/internal/clockctx"
	"github.com/leasehold-go/leasehold/internal/ctxerr"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/mutex"
)

// sim is one case: workers, their links, the store, and the only place where time moves.
type sim struct {
	t    interface{ Fatalf(string, ...any) } // also of the bubble
	base time.Duration                       // the TTL that everything else is a fraction or multiple of

	// Drawn for the case.
	netFirst   bool // messages before timers, if both are due
	storeFirst bool // the store's timers before the workers', if both are due
	burst      int  // so many messages are delivered before anybody reacts
	dirtyLeave bool // a waiter that gives up does not wait for the store's word

	store   *simClock
	mem     *memory.Backend
	workers []*worker
	names   []string

	steps  int      // since the last action
	starts []func() // what users do in the same breath, as soon as anybody is let run

	mu          sync.Mutex // guards what follows, and links and inboxes
	now         time.Duration
	hist        history
	net         []message
	netSeq      int
	timers      []dueTimer
	parked      map[string]*parked         // by owner
	expiry      map[leaseKey]time.Duration // when the record of a token ends, as far as the store has said
	robbed      map[leaseKey]stamp
	byOwner     map[string]*call
	autoRelease bool // whoever is granted a lease gives it back at once
	breach      string

	goroutines int
	finished   bool // the case went well to its end
}

// worker is one process with its own clock, Locker and link.
type worker struct {
	s      *sim
	id     int
	name   string
	clk    *simClock
	locks  *mutex.Locker
	opts   options
	queues bool
	link   link
	paused bool
	since  time.Duration // paused since
	pauses [][2]time.Duration
	inbox  []func()

	crashed     bool
	closeCalled bool
	closed      *stamp
	closeErr    error
}

type message struct {
	at  time.Duration
	seq int
	do  func()
}

type signals struct {
	lost, done <-chan struct{}
	ctx        context.Context
}

// maxSteps bounds what one stretch of time may bring about: more is a burst.
const maxSteps = 20_000

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newSim(t interface{ Fatalf(string, ...any) }, base time.Duration, names int) *sim {
	s := &sim{
		t: t, base: base, store: newSimClock(epoch, 0), burst: 1,
		parked: map[string]*parked{}, expiry: map[leaseKey]time.Duration{}, robbed: map[leaseKey]stamp{},
		byOwner: map[string]*call{},
	}
	s.hist.hooks = map[leaseKey][]hook{}
	s.mem = memory.New(memory.WithClock(s.store))
	for i := range names {
		s.names = append(s.names, string(rune('a'+i)))
	}
	s.goroutines = runtime.NumGoroutine()
	warnings.take()
	return s
}

// addWorker starts a worker whose clock runs at 1 + ppm/1e6 of true time and shows skew more.
func (s *sim) addWorker(ppm int64, skew time.Duration, seed uint64, queues bool, o options) *worker {
	w := &worker{
		s: s, id: len(s.workers), clk: newSimClock(epoch.Add(skew), ppm), opts: o, queues: queues,
		link: link{tell: -1},
	}
	w.name = "w" + strconv.Itoa(w.id)
	var b lease.Backend = poller{w}
	if queues {
		b = queuer{poller{w}}
	}
	rng := rand.New(rand.NewPCG(seed, uint64(w.id)))
	var mu sync.Mutex
	jitter := func() float64 {
		mu.Lock()
		defer mu.Unlock()
		r := rng.Float64()
		switch { // every other is at an edge
		case seed == 0 && rng.IntN(2) == 0:
			return 0
		case seed == 1 && rng.IntN(2) == 0:
			return 1 - 1.0/(1<<53)
		}
		return r
	}
	opts := append(o.list(), mutex.WithClock(w.clk), mutex.WithRand(jitter), mutex.WithObserver(w.observer()))
	locks, err := mutex.New(b, opts...)
	if err != nil {
		s.t.Fatalf("mutex.New(%+v): %v", o, err)
	}
	w.locks = locks
	s.workers = append(s.workers, w)
	s.note(w.name, "starts: clock %+d ppm, queue %v, %v", ppm, queues, o)
	return w
}

func (o options) list() []mutex.Option {
	list := []mutex.Option{mutex.WithTTL(o.ttl)}
	if o.noRenewal {
		list = append(list, mutex.WithoutRenewal())
	} else {
		list = append(list, mutex.WithRenewEvery(o.every))
	}
	if o.strict {
		list = append(list, mutex.WithStrictRenewal())
	}
	if o.maxHold > 0 {
		list = append(list, mutex.WithMaxHold(o.maxHold))
	}
	return list
}

// observer checks what hooks are promised, on the goroutine that calls them.
func (w *worker) observer() lease.Observer {
	s := w.s
	note := func(what string) func(lease.Event) {
		return func(e lease.Event) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.noteLocked(w.name, "observer: %s %s token %d %v %v", what, e.Name, e.Token, e.Reason, e.Err)
			key := leaseKey{e.Name, e.Token}
			s.hist.hooks[key] = append(s.hist.hooks[key], hook{what, s.stampLocked()})
			for _, h := range s.hist.holds {
				if h.w == w && h.key() == key {
					if what == "Lost" || what == "Released" {
						s.signalsLocked(h, "when the observer was told")
					}
				}
			}
		}
	}
	return lease.Observer{
		Renewed: note("Renewed"), RenewFailing: note("RenewFailing"), Recovered: note("Recovered"),
		Lost: note("Lost"), Released: note("Released"),
	}
}

// --- time ---

// settle waits until every goroutine is blocked, and looks.
func (s *sim) settle() {
	for _, f := range s.starts {
		f()
	}
	s.starts = nil
	synctest.Wait()
	s.observe()
}

// runTo lets true time pass until the instant until, from event to event.
func (s *sim) runTo(until time.Duration) {
	s.steps = 0
	s.settle()
	for s.step(until) {
		s.settle()
	}
}

func (s *sim) pass(d time.Duration) { s.runTo(s.now + d) }

// runUntil lets time pass until ok holds, for at most d, and reports whether it does.
func (s *sim) runUntil(d time.Duration, ok func() bool) bool {
	s.steps = 0
	until := s.now + d
	s.settle()
	for !ok() {
		if !s.step(until) {
			return ok()
		}
		s.settle()
	}
	return true
}

// step does what is due, or moves time to what is next. It reports false when that is after until.
func (s *sim) step(until time.Duration) bool {
	if s.steps++; s.steps > maxSteps {
		s.fail("Pacing", "more than %d events within one stretch of time", maxSteps)
	}
	netDue := len(s.net) > 0 && s.net[0].at <= s.now
	switch {
	case netDue && (s.netFirst || len(s.timers) == 0):
		for range s.burst {
			s.mu.Lock()
			if len(s.net) == 0 || s.net[0].at > s.now {
				s.mu.Unlock()
				break
			}
			m := s.net[0]
			s.net = s.net[1:]
			s.mu.Unlock()
			m.do()
		}
		return true
	case len(s.timers) > 0:
		d := s.timers[0]
		s.timers = s.timers[1:]
		d.fire()
		return true
	}
	next := until
	found := false
	if len(s.net) > 0 && s.net[0].at <= until {
		next, found = s.net[0].at, true
	}
	clocks := s.running()
	for _, c := range clocks {
		if t, ok := c.next(); ok && t <= next {
			next, found = t, true
		}
	}
	s.mu.Lock()
	s.now = max(s.now, next)
	s.mu.Unlock()
	for _, c := range clocks {
		c.show(s.now)
	}
	for _, c := range clocks {
		s.timers = append(s.timers, c.due()...)
	}
	return found
}

// running is the clocks that move, in the order in which they are served.
func (s *sim) running() []*simClock {
	list := make([]*simClock, 0, len(s.workers)+1)
	if s.storeFirst {
		list = append(list, s.store)
	}
	for _, w := range s.workers {
		if !w.paused {
			list = append(list, w.clk)
		}
	}
	if !s.storeFirst {
		list = append(list, s.store)
	}
	return list
}

// afterLocked has f called by the goroutine that moves time, d from now.
func (s *sim) afterLocked(d time.Duration, f func()) {
	m := message{s.now + max(d, 0), s.netSeq, f}
	s.netSeq++
	i := len(s.net)
	for i > 0 && s.net[i-1].at > m.at {
		i--
	}
	s.net = slices.Insert(s.net, i, m)
}

func (s *sim) stampLocked() stamp {
	s.hist.seq++
	return stamp{s.now, s.hist.seq}
}

func (s *sim) stamp() stamp {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stampLocked()
}

func (s *sim) note(who, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteLocked(who, format, args...)
}

func (s *sim) noteLocked(who, format string, args ...any) {
	s.hist.lines = append(s.hist.lines, line{s.now, who, format, args})
}

// breachLocked notes the breach of an invariant on a goroutine of the product.
func (s *sim) breachLocked(invariant, format string, args ...any) {
	s.hist.facts = append(s.hist.facts, fact{s.stampLocked(), invariant, fmt.Sprintf(format, args...)})
}

// fail ends the case.
func (s *sim) fail(invariant, format string, args ...any) {
	if s.breach == "" {
		s.breach = fmt.Sprintf("invariant %s: at %v: %s", invariant, s.now, fmt.Sprintf(format, args...))
	}
	s.t.Fatalf("%s", s.breach)
}

// --- calls of users ---

type way uint8

const (
	lockWay way = iota
	waitWay
	deadlineWay
	tryWay
)

// start has f called before anybody is let run. Until then nothing moves, and what everybody did can be read without a lock.
func (s *sim) start(f func()) { s.starts = append(s.starts, f) }

// lock starts a call of Lock or TryLock by w.
func (s *sim) lock(w *worker, name string, o options, how way, wait time.Duration, lazy bool) *call {
	o.strict = o.strict || w.opts.strict // what is set for all calls cannot be unset for one
	if o.maxHold == 0 {
		o.maxHold = w.opts.maxHold
	}
	parent, cancel := context.WithCancel(context.Background())
	c := &call{w: w, name: name, opts: o, cancel: cancel, lazy: lazy, kind: "Lock"}
	s.mu.Lock()
	c.id = len(s.hist.calls)
	c.called, c.calledLocal = s.stampLocked(), w.clk.Now()
	s.hist.calls = append(s.hist.calls, c)
	s.mu.Unlock()
	opts := append(o.list(), mutex.WithLabel("#"+strconv.Itoa(c.id)))
	ctx := parent
	do := w.locks.Lock
	switch how {
	case waitWay:
		c.wait, c.kind = wait, "Lock(WithWait)"
		opts = append(opts, mutex.WithWait(wait))
	case deadlineWay:
		c.wait, c.kind, c.ctxEnds = wait, "Lock(deadline)", true
		var end context.CancelFunc
		ctx, end = clockctx.WithTimeout(parent, w.clk, wait)
		c.cancel = func() { end(); cancel() }
	case tryWay:
		c.kind = "TryLock"
		do = w.locks.TryLock
	}
	s.note(w.name, "%s(%s) #%d %v %v", c.kind, name, c.id, o, wait)
	s.start(func() {
		go func() {
			h, err := do(ctx, name, opts...)
			s.got(c, h, err)
		}()
	})
	return c
}

// got takes what a call returned, on its goroutine.
func (s *sim) got(c *call, h *lease.Handle, err error) {
	var sig signals
	var hd *hold
	if h != nil {
		if !c.lazy {
			sig = signals{h.Lost(), h.Done(), h.Context()}
		}
		hd = &hold{
			call: c, h: h, control: *(**lease.Control)(unsafe.Pointer(h)), sig: sig, token: h.Token(),
			trust: h.TrustedUntil(), state: lease.Held, gotLocal: c.w.clk.Now(),
		}
	}
	s.mu.Lock()
	c.over, c.returned, c.err, c.nilHandle = true, s.stampLocked(), err, h == nil
	c.closed = c.w.closeCalled
	release := s.autoRelease
	if hd != nil {
		c.hold, hd.got = hd, c.returned
		hd.gotTrust = hd.trust.Sub(hd.gotLocal)
		s.hist.holds = append(s.hist.holds, hd)
		s.noteLocked(c.w.name, "#%d is granted: %s token %d, trusted for %v", c.id, c.name, hd.token, hd.trust.Sub(c.w.clk.Now()))
	} else {
		s.noteLocked(c.w.name, "#%d ends: %v", c.id, err)
	}
	s.mu.Unlock()
	if hd != nil && release {
		s.releasing(hd)()
	}
}

// release starts a Release by hd's user.
func (s *sim) release(hd *hold) { s.start(s.releasing(hd)) }

func (s *sim) releasing(hd *hold) func() {
	h := hd.h
	return s.user(hd, "Release", 0, func() error { return h.Release(context.Background()) })
}

// renew starts a Renew or RenewFor by hd's user.
func (s *sim) renew(hd *hold, ttl time.Duration, bound time.Duration) {
	h, clk := hd.h, hd.w.clk
	s.start(s.user(hd, "Renew", ttl, func() error {
		ctx := context.Background()
		if bound > 0 {
			bounded, end := clockctx.WithTimeout(ctx, clk, bound)
			defer end()
			ctx = bounded
		}
		if ttl == 0 {
			return h.Renew(ctx)
		}
		return h.RenewFor(ctx, ttl)
	}))
}

// user notes a call by hd's user, and returns what makes it.
func (s *sim) user(hd *hold, what string, ttl time.Duration, f func() error) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := &userCall{hold: hd, what: what, ttl: ttl, called: s.stampLocked()}
	s.hist.users = append(s.hist.users, u)
	hd.busy++
	s.noteLocked(hd.w.name, "#%d %s %v", hd.id, what, ttl)
	return func() {
		go func() {
			err := f()
			s.mu.Lock()
			defer s.mu.Unlock()
			u.err, u.over, u.returned = err, true, s.stampLocked()
			hd.busy--
			s.noteLocked(hd.w.name, "#%d %s: %v", hd.id, what, err)
		}()
	}
}

// drop forgets hd's handle and waits until the collector has noticed.
func (s *sim) drop(hd *hold) {
	if hd.sig.lost == nil {
		hd.sig.lost, hd.sig.done = hd.h.Lost(), hd.h.Done()
	}
	control := hd.control
	collected := new(atomic.Bool)
	runtime.AddCleanup(hd.h, func(b *atomic.Bool) { b.Store(true) }, collected)
	hd.h, hd.sig.ctx = nil, nil
	at := s.stamp()
	hd.dropped = &at
	s.note(hd.w.name, "#%d drops its handle", hd.id)
	// Cleanups run outside the bubble, so this does not wait on anything that the bubble counts.
	for range 100 {
		runtime.GC()
		runtime.Gosched()
		if collected.Load() && control.Abandoned() {
			return
		}
	}
	s.fail("Abandonment", "#%d: the dropped handle is not collected while it is supervised", hd.id)
}

// --- what happens to workers ---

func (s *sim) pause(w *worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.paused, w.since = true, s.now
	s.noteLocked(w.name, "is paused")
}

func (s *sim) resume(w *worker) {
	s.mu.Lock()
	w.paused = false
	w.pauses = append(w.pauses, [2]time.Duration{w.since, s.now})
	for _, f := range w.inbox {
		s.afterLocked(0, f)
	}
	w.inbox = nil
	s.noteLocked(w.name, "goes on")
	s.mu.Unlock()
	w.clk.show(s.now)
	s.timers = append(s.timers, w.clk.due()...)
}

func (s *sim) close(w *worker) {
	s.mu.Lock()
	w.closeCalled = true
	s.noteLocked(w.name, "Close")
	s.mu.Unlock()
	s.start(func() {
		go func() {
			err := w.locks.Close(context.Background())
			s.mu.Lock()
			defer s.mu.Unlock()
			at := s.stampLocked()
			w.closed, w.closeErr = &at, err
			s.noteLocked(w.name, "Close: %v", err)
		}()
	})
}

// callOfLocked finds the call that rq belongs to. The label of a request is the id of its call.
func (s *sim) callOfLocked(rq *request) *call {
	if rq.op == opAcquire || rq.op == opWait {
		if id, err := strconv.Atoi(rq.req.Label[1:]); err == nil && id < len(s.hist.calls) {
			c := s.hist.calls[id]
			if c.owner == "" {
				c.owner = rq.owner
			}
			if c.owner != rq.owner {
				s.breachLocked("OneOwner", "#%d asks as a second owner", id)
			}
			s.byOwner[rq.owner] = c
		}
	}
	return s.byOwner[rq.owner]
}

// observe looks at every handle, while everything is at rest.
func (s *sim) observe() {
	s.mu.Lock()
	facts := s.hist.facts
	s.mu.Unlock()
	if len(facts) > 0 {
		s.fail(facts[0].invariant, "%s", facts[0].text)
	}
	if !s.isDue() {
		if err := givenBack(s); err != nil {
			s.fail("GivenBack", "%v", err)
		}
	}
	for _, hd := range s.hist.holds {
		if hd.state.Terminal() {
			continue
		}
		for _, inv := range atRest {
			if err := inv.holds(s, hd); err != nil {
				s.fail(inv.name, "#%d (%s token %d): %v", hd.id, hd.name, hd.token, err)
			}
		}
		s.see(hd)
	}
}

// see notes what a handle shows now.
func (s *sim) see(hd *hold) {
	if state := hd.control.State(); state.Terminal() {
		hd.state, hd.endErr = state, hd.control.Err()
		hd.end, hd.endSeen = s.stamp(), hd.w.clk.Now()
		hd.trust = hd.control.Trust()
		hd.expiry = s.expiry[hd.key()]
		var lost *lease.LostError
		if errors.As(hd.endErr, &lost) {
			hd.reason = lost.Reason
		}
		if hd.h != nil && hd.sig.lost == nil {
			hd.sig = signals{hd.h.Lost(), hd.h.Done(), hd.h.Context()}
		}
		s.mu.Lock()
		s.signalsLocked(hd, "at rest")
		s.mu.Unlock()
		s.note(hd.w.name, "#%d is over: %v", hd.id, hd.endErr)
		return
	}
	if !s.isDue() {
		hd.trust = hd.control.Trust()
	}
}

// signalsLocked checks that all signals of an ended handle have been given and agree.
func (s *sim) signalsLocked(hd *hold, when string) {
	state, err := hd.control.State(), hd.control.Err()
	bad := ""
	switch {
	case !state.Terminal():
		bad = "state is " + state.String()
	case state == lease.Lost && !errors.Is(err, lease.ErrLost), state == lease.Released && err != lease.ErrReleased:
		bad = fmt.Sprintf("state is %v but Err is %v", state, err)
	case hd.sig.lost != nil && closed(hd.sig.lost) != (state == lease.Lost):
		bad = fmt.Sprintf("state is %v but Lost closed is %v", state, closed(hd.sig.lost))
	case hd.sig.done != nil && !closed(hd.sig.done):
		bad = fmt.Sprintf("state is %v but Done is open", state)
	}
	if ctx := hd.sig.ctx; bad == "" && ctx != nil && !hd.ctxEnds {
		if cause := ctxerr.Of(ctx); cause == nil {
			bad = "Context is not cancelled"
		} else if !errors.Is(context.Cause(ctx), err) {
			bad = fmt.Sprintf("Err is %v but the cause of Context is %v", err, context.Cause(ctx))
		}
	}
	if bad != "" {
		s.breachLocked("SignalsAgree", "#%d, %s: %s", hd.id, when, bad)
	}
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// teardown ends whatever is left after a breach, so that the bubble can end and the breach be shown. After a case that went
// well it finds nothing to do.
func (s *sim) teardown() {
	// A handle's cleanup keeps its supervisor, and so the backend, this case and all its handles.
	defer func() {
		for _, hd := range s.hist.holds {
			hd.h, hd.sig.ctx = nil, nil
		}
	}()
	if s.finished {
		return
	}
	synctest.Wait()
	s.mu.Lock()
	s.autoRelease = false
	for _, w := range s.workers {
		w.crashed, w.paused = true, false
		w.link.tell = 0
	}
	s.mu.Unlock()
	for _, c := range s.hist.calls {
		c.cancel()
	}
	for _, w := range s.workers {
		go w.locks.Close(context.Background())
	}
	for range 1000 {
		synctest.Wait()
		s.mu.Lock()
		timers, net := s.timers, s.net
		s.timers, s.net = nil, nil
		open := []*request{}
		for _, rq := range s.hist.reqs {
			if !rq.over {
				open = append(open, rq)
			}
		}
		left := make([]*parked, 0, len(s.parked))
		for _, p := range s.parked {
			left = append(left, p)
		}
		s.mu.Unlock()
		if len(timers)+len(net)+len(open)+len(left) == 0 {
			if synctest.Wait(); !s.anyTimer() {
				return
			}
		}
		for _, d := range timers {
			d.fire()
		}
		for _, rq := range open {
			select {
			case rq.reply <- answer{err: errRefused}:
			default:
			}
		}
		for _, p := range left {
			p.cancel()
		}
		s.mu.Lock()
		s.now += s.base
		s.mu.Unlock()
		for _, c := range s.running() {
			c.show(s.now)
			s.timers = append(s.timers, c.due()...)
		}
	}
}

func (s *sim) anyTimer() bool {
	for _, c := range s.running() {
		if c.pending() > 0 {
			return true
		}
	}
	return false
}

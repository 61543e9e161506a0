package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold/backends/memory"
	"github.com/leasehold-go/leasehold/internal/footprint"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/lease/leasetest"
	"github.com/leasehold-go/leasehold/mutex"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The values of shared/cases.md.
const (
	T = mutex.DefaultTTL // length of a lease
	R = T / 3            // time from one renewal to the next
	P = mutex.MaxPollGap // longest time between two attempts of a waiter that polls
)

// trusted is how long a lease of this length may be relied on.
func trusted(ttl time.Duration) time.Duration { return ttl - lease.Margin(ttl) }

// world is a store, a network to it that fails by plan, and a Locker behind that network, all in one bubble. There is one clock for
// all: a test cannot move the Locker's time without the store's.
type world struct {
	*testing.T
	ctx    context.Context
	clk    *clock.Mock
	start  time.Time
	store  *memory.Backend
	net    lease.Backend // the store as locks sees it
	faults *leasetest.Faults
	locks  *mutex.Locker
	kept   []*lease.Handle // all that lock and granted returned: a handle that a test drops would be noticed
}

// inBubble runs f in a world in which nothing is random: renewals come exactly when they are due. Afterwards nothing may be left
// running, and no timer set.
func inBubble(t *testing.T, f func(w *world), opts ...mutex.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(b *memory.Backend) lease.Backend { return b }, opts)
		defer w.end() // also after a Fatal: a bubble that is left with goroutines in it panics
		f(w)
	})
}

// inPollingBubble is inBubble for a store without a queue.
func inPollingBubble(t *testing.T, f func(w *world), opts ...mutex.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(b *memory.Backend) lease.Backend { return leasetest.WithoutQueue(b) }, opts)
		defer w.end() // also after a Fatal: a bubble that is left with goroutines in it panics
		f(w)
	})
}

func newWorld(t *testing.T, as func(*memory.Backend) lease.Backend, opts []mutex.Option) *world {
	w := &world{T: t, ctx: context.Background(), clk: clock.NewMock()}
	w.start = w.clk.Now()
	w.store = memory.New(memory.WithClock(w.clk))
	w.net, w.faults = leasetest.Faulty(as(w.store), w.clk)
	w.locks = w.locker(w.net, opts...)
	return w
}

// end takes the world down.
func (w *world) end() {
	w.Helper()
	w.faults.Plan(nil)
	w.faults.Heal()
	if err := w.locks.Close(w.ctx); err != nil {
		w.Errorf("Close: %v", err)
	}
	w.faults.Close()
	runtime.KeepAlive(w.kept)
	synctest.Wait()
	if n := w.timers(); n != 0 {
		w.Errorf("%d timers are still set", n)
	}
}

// locker returns another Locker, as another process has one.
func (w *world) locker(b lease.Backend, opts ...mutex.Option) *mutex.Locker {
	w.Helper()
	l, err := mutex.New(b, append([]mutex.Option{mutex.WithClock(w.clk), mutex.WithRand(zero)}, opts...)...)
	if err != nil {
		w.Fatalf("New: %v", err)
	}
	return l
}

func zero() float64 { return 0 }

// rounds is how often a test repeats what a case asks for n times: fewer where that is slow.
func rounds(n int) int {
	switch {
	case testing.Short():
		return n / 10
	case footprint.UnderRace:
		return n / 5
	}
	return n
}

// advance lets everybody settle, then moves the clock of all.
func (w *world) advance(d time.Duration) {
	synctest.Wait()
	w.clk.Add(d)
}

// now is the time since the start.
func (w *world) now() time.Duration { return w.clk.Now().Sub(w.start) }

// until moves the clock to the instant at, counted from the start.
func (w *world) until(at time.Duration) { w.advance(at - w.now()) }

// timers is how many timers are set.
func (w *world) timers() int {
	return reflect.ValueOf(w.clk).Elem().FieldByName("timers").Len()
}

// records is how many records the store keeps, supervised how many leases l looks after.
func (w *world) records() int { return reflect.ValueOf(w.store).Elem().FieldByName("records").Len() }
func supervised(l *mutex.Locker) int {
	return reflect.ValueOf(l).Elem().FieldByName("held").Len()
}

// goroutines is how many goroutines run the library's code: actors, calls of Lock, calls to the backend.
func (w *world) goroutines() int {
	synctest.Wait()
	buf := make([]byte, 1<<20)
	n := 0
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(stack, "leasehold/renewal.") || strings.Contains(stack, "leasehold/mutex.") || strings.Contains(stack, "internal/clockctx") {
			n++
		}
	}
	return n
}

// lock takes name, which must be free.
func (w *world) lock(name string, opts ...mutex.Option) *lease.Handle {
	w.Helper()
	return w.lockOn(w.locks, name, opts...)
}

func (w *world) lockOn(l *mutex.Locker, name string, opts ...mutex.Option) *lease.Handle {
	w.Helper()
	h, err := l.TryLock(w.ctx, name, opts...)
	if err != nil {
		w.Fatalf("TryLock(%q) of a free name: %v", name, err)
	}
	w.kept = append(w.kept, h)
	return h
}

// result is what a call of Lock in the background came to.
type result struct {
	h   *lease.Handle
	err error
	at  time.Duration
}

// waiting starts a call of Lock and lets it get as far as it can.
func (w *world) waiting(l *mutex.Locker, ctx context.Context, name string, opts ...mutex.Option) <-chan result {
	got := make(chan result, 1)
	go func() {
		h, err := l.Lock(ctx, name, opts...)
		if (h == nil) != (err != nil) {
			w.Errorf("Lock returned handle %v and error %v", h, err)
		}
		got <- result{h, err, w.now()}
	}()
	synctest.Wait()
	return got
}

// result returns what has come of a call, which must have returned.
func (w *world) result(got <-chan result) result {
	w.Helper()
	synctest.Wait()
	select {
	case r := <-got:
		return r
	default:
		w.Fatalf("at %v Lock has not returned", w.now())
		return result{}
	}
}

// stillWaiting fails unless the call waits.
func (w *world) stillWaiting(got <-chan result) {
	w.Helper()
	synctest.Wait()
	select {
	case r := <-got:
		w.Fatalf("at %v Lock returned handle %v and error %v, want it to wait", r.at, r.h, r.err)
	default:
	}
}

// granted returns the handle of a call that must have succeeded.
func (w *world) granted(got <-chan result) *lease.Handle {
	w.Helper()
	r := w.result(got)
	if r.err != nil {
		w.Fatalf("Lock: %v", r.err)
	}
	w.kept = append(w.kept, r.h)
	return r.h
}

// holder is what the store tells a stranger of name's holder; ok is false if the name is free.
func (w *world) holder(name string) (holder lease.Holder, ok bool) {
	w.Helper()
	_, err := w.store.Acquire(w.ctx, lease.Request{Name: name, Owner: "probe", TTL: T})
	var held *lease.HeldError
	if errors.As(err, &held) {
		return held.Holder, true
	}
	if err != nil {
		w.Fatal(err)
	}
	if err := w.store.Release(w.ctx, lease.Claim{Name: name, Owner: "probe"}); err != nil {
		w.Fatal(err)
	}
	return lease.Holder{}, false
}

func (w *world) wantFree(name string) {
	w.Helper()
	if holder, ok := w.holder(name); ok {
		w.Errorf("at %v %q is held under token %d, want it free", w.now(), name, holder.Token)
	}
}

func (w *world) wantHolder(name string, h *lease.Handle) {
	w.Helper()
	if holder, ok := w.holder(name); !ok || holder.Token != h.Token() {
		w.Errorf("at %v %q: held %v under token %d, want it held under %d", w.now(), name, ok, holder.Token, h.Token())
	}
}

// deleteRecord deletes name's record behind its holder's back.
func (w *world) deleteRecord(name string) {
	w.Helper()
	w.deleteRecordOf(w.faults, name)
}

// deleteRecordOf is deleteRecord for a holder that came over the network of faults.
func (w *world) deleteRecordOf(faults *leasetest.Faults, name string) {
	w.Helper()
	for _, c := range faults.Calls() {
		if c.Claim.Name == name {
			if err := w.store.Release(w.ctx, lease.Claim{Name: name, Owner: c.Claim.Owner}); err != nil {
				w.Error(err)
			}
		}
	}
}

// sent returns the calls of one kind for one name so far; an empty name stands for all.
func (w *world) sent(op leasetest.Op, name string) []leasetest.Call {
	synctest.Wait()
	var calls []leasetest.Call
	for _, c := range w.faults.Calls() {
		if c.Op == op && (name == "" || c.Claim.Name == name) {
			calls = append(calls, c)
		}
	}
	return calls
}

// sentAt returns when the calls of one kind for one name were sent.
func (w *world) sentAt(op leasetest.Op, name string) []time.Duration {
	var at []time.Duration
	for _, c := range w.sent(op, name) {
		at = append(at, c.Start.Sub(w.start))
	}
	return at
}

func (w *world) wantSent(op leasetest.Op, name string, want int) {
	w.Helper()
	if got := len(w.sent(op, name)); got != want {
		w.Errorf("at %v: %d calls of %v for %q, want %d", w.now(), got, op, name, want)
	}
}

// wantLostAt moves to one nanosecond before the instant at, where h must be held, and over it, where it must be lost for reason.
func (w *world) wantLostAt(h *lease.Handle, at time.Duration, reason lease.Reason) {
	w.Helper()
	w.until(at - 1)
	w.wantHeld(h)
	w.advance(1)
	w.wantLost(h, reason)
}

// wantHeld checks that all of h says that it is held.
func (w *world) wantHeld(h *lease.Handle) {
	w.Helper()
	synctest.Wait()
	if h.State() != lease.Held || !h.Valid() || h.Err() != nil || isClosed(h.Lost()) || isClosed(h.Done()) || h.Context().Err() != nil {
		w.Fatalf("at %v %q: %s, want it held", w.now(), h.Name(), describe(h))
	}
}

// wantLost checks that all of h says that it is lost for reason.
func (w *world) wantLost(h *lease.Handle, reason lease.Reason) *lease.LostError {
	w.Helper()
	synctest.Wait()
	var lost *lease.LostError
	if h.State() != lease.Lost || h.Valid() || !errors.As(h.Err(), &lost) || !isClosed(h.Lost()) || !isClosed(h.Done()) || h.Context().Err() == nil {
		w.Fatalf("at %v %q: %s, want it lost", w.now(), h.Name(), describe(h))
	}
	if lost.Reason != reason || lost.Name != h.Name() || lost.Token != h.Token() || !errors.Is(lost, lease.ErrLost) {
		w.Fatalf("at %v %q: lost with %v, want reason %v", w.now(), h.Name(), lost, reason)
	}
	if cause := context.Cause(h.Context()); cause != h.Err() {
		w.Errorf("%q: cause %v, want %v", h.Name(), cause, h.Err())
	}
	return lost
}

// wantReleased checks that all of h says that it was released.
func (w *world) wantReleased(h *lease.Handle) {
	w.Helper()
	if h.State() != lease.Released || h.Valid() || !errors.Is(h.Err(), lease.ErrReleased) || isClosed(h.Lost()) || !isClosed(h.Done()) ||
		context.Cause(h.Context()) != h.Err() {
		w.Fatalf("at %v %q: %s, want it released", w.now(), h.Name(), describe(h))
	}
}

func describe(h *lease.Handle) string {
	return fmt.Sprintf("state %v, valid %v, error %v, lost closed %v, done closed %v, context %v",
		h.State(), h.Valid(), h.Err(), isClosed(h.Lost()), isClosed(h.Done()), h.Context().Err())
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// release gives h back, which must succeed.
func (w *world) release(h *lease.Handle) {
	w.Helper()
	if err := h.Release(w.ctx); err != nil {
		w.Errorf("Release(%q): %v", h.Name(), err)
	}
}

// wantMatch checks which sentinels an error matches.
func wantMatch(t testing.TB, err error, is []error, not ...error) {
	t.Helper()
	if err == nil {
		t.Fatalf("got no error, want one that matches %v", is)
	}
	for _, target := range is {
		if !errors.Is(err, target) {
			t.Errorf("error %q does not match %q", err, target)
		}
	}
	for _, target := range not {
		if errors.Is(err, target) {
			t.Errorf("error %q matches %q", err, target)
		}
	}
}

// is makes the first list of wantMatch readable.
func is(targets ...error) []error { return targets }

// fail is a fault: the request never arrives, and the store answers err.
func fail(err error) leasetest.Fault { return leasetest.Fault{Action: leasetest.DropRequest, Err: err} }

// failing is a plan by which every call of op fails.
func failing(op leasetest.Op, f leasetest.Fault) func(leasetest.Op, string) leasetest.Fault {
	return func(o leasetest.Op, _ string) leasetest.Fault {
		if o == op {
			return f
		}
		return leasetest.Fault{}
	}
}

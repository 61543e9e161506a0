package leasetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/lease"
)

// waiter is one call of Wait, running in a goroutine of its own.
type waiter struct {
	k    *kit
	b    lease.Queuer
	req  lease.Request
	end  context.CancelFunc
	told chan struct{} // closed when held is called for the first time
	wake chan struct{} // if not nil, held blocks until it is closed
	done chan struct{} // closed when the call has returned

	mu     sync.Mutex
	holder lease.Holder // as told last
	tells  int

	// Set before done is closed.
	lease *held
	err   error
}

func (k *kit) queuer() lease.Queuer { return k.backend.(lease.Queuer) }

// waits lets a new owner wait for the name that h holds, and returns when it stands in the queue.
func (k *kit) waits(h *held) *waiter {
	k.Helper()
	return k.waitsAs(h, k.owner(), long)
}

func (k *kit) waitsAs(h *held, owner string, ttl time.Duration) *waiter {
	k.Helper()
	return k.waitsThrough(k.queuer(), h, owner, ttl)
}

func (k *kit) waitsThrough(b lease.Queuer, h *held, owner string, ttl time.Duration) *waiter {
	k.Helper()
	w := k.startWait(b, lease.Request{Name: h.claim.Name, Owner: owner, TTL: ttl})
	w.wantQueued(h)
	return w
}

// startWait starts a call of Wait. When the case ends, so does the call.
func (k *kit) startWait(b lease.Queuer, req lease.Request) *waiter {
	w, ctx := k.newWaiter(b, req)
	w.start(ctx)
	return w
}

func (k *kit) newWaiter(b lease.Queuer, req lease.Request) (*waiter, context.Context) {
	ctx, end := context.WithCancel(k.ctx)
	return &waiter{k: k, b: b, req: req, end: end, told: make(chan struct{}), done: make(chan struct{})}, ctx
}

// waitsAsleep is waits, but the waiter's goroutine is stuck until wake is called, as in a process that is paused: it stands
// in the queue and cannot move. held must not block for long, but a scheduler may do worse.
func (k *kit) waitsAsleep(h *held, ttl time.Duration) (w *waiter, wake func()) {
	k.Helper()
	w, ctx := k.newWaiter(k.queuer(), lease.Request{Name: h.claim.Name, Owner: k.owner(), TTL: ttl})
	w.wake = make(chan struct{})
	wake = sync.OnceFunc(func() { close(w.wake) })
	w.start(ctx)
	k.Cleanup(wake)
	w.wantQueued(h)
	return w, wake
}

func (w *waiter) start(ctx context.Context) {
	go w.run(ctx)
	w.k.Cleanup(func() {
		w.end()
		<-w.done
	})
}

func (w *waiter) run(ctx context.Context) {
	defer close(w.done)
	sent := w.k.now()
	g, err := w.b.Wait(ctx, w.req, w.tell)
	if err != nil {
		w.err = err
		return
	}
	if w.k.exact() {
		sent = w.k.now() // the lease began at this very instant, if handed over
	}
	w.lease = w.k.newHeld(w.req, g, sent)
}

func (w *waiter) tell(h lease.Holder) {
	w.mu.Lock()
	w.holder = h
	if w.tells++; w.tells == 1 {
		close(w.told)
	}
	w.mu.Unlock()
	if w.wake != nil {
		<-w.wake
	}
}

// wantQueued blocks until the store has confirmed to w that another holds the name, which is h: now w has its place.
func (w *waiter) wantQueued(h *held) {
	w.k.Helper()
	if !w.k.comes(w.told, w.done) {
		w.k.Fatalf("Wait for a held name: held was not called, and the call has not returned")
	}
	w.wantWaiting(h)
}

// wantWaiting checks that w is not served while h is held.
func (w *waiter) wantWaiting(h *held) {
	w.k.Helper()
	w.k.settle()
	if !w.running() {
		w.k.unlessLate(h)
		w.k.Fatalf("Wait ended out of turn, with %s", w.outcome())
	}
}

// wantGranted blocks until w is served, which must happen without any time passing, and returns the lease.
func (w *waiter) wantGranted() *held {
	w.k.Helper()
	if !w.k.comes(w.done, nil) {
		w.k.Fatalf("the waiter whose turn it is was not served")
	}
	return w.mustHold()
}

// wantGrantedWithin is wantGranted, but time may pass: up to d.
func (w *waiter) wantGrantedWithin(d time.Duration) *held {
	w.k.Helper()
	for passed := time.Duration(0); w.running() && passed < d; passed += d / 20 {
		w.k.sleep(d / 20)
	}
	return w.wantGranted()
}

func (w *waiter) running() bool {
	select {
	case <-w.done:
		return false
	default:
		return true
	}
}

func (w *waiter) mustHold() *held {
	w.k.Helper()
	if w.err != nil {
		w.k.Fatalf("Wait: got error %v, want the lease", w.err)
	}
	return w.lease
}

func (w *waiter) outcome() string {
	if w.err != nil {
		return "error " + w.err.Error()
	}
	return "token " + w.lease.claim.Token.String()
}

// giveUp cancels w and waits for its end. A lease that was granted meanwhile remains with w.
func (w *waiter) giveUp() {
	w.k.Helper()
	w.end()
	if !w.k.comes(w.done, nil) {
		w.k.Fatalf("Wait has not returned although its ctx has ended")
	}
	if w.err != nil && !errors.Is(w.err, context.Canceled) {
		w.k.Errorf("Wait with a cancelled ctx: got error %v, want one that matches context.Canceled", w.err)
	}
}

// leave cancels w and cleans up after it as the contract asks of a caller: nothing of w is left.
func (w *waiter) leave() {
	w.k.Helper()
	w.giveUp()
	w.cleanUp()
}

// cleanUp gives back what a Wait that has returned may have left: its lease, or after an unknown end its place.
func (w *waiter) cleanUp() {
	w.k.Helper()
	switch {
	case w.err == nil:
		w.k.release(w.lease)
	case !errors.Is(w.err, lease.ErrHeld): // which says that nothing is left behind
		w.k.withdraw(w.req.Name, w.req.Owner)
	}
}

// comes waits until one of two channels is closed and reports whether one was. In a bubble no time passes; outside, the
// kit has patience. A nil channel never comes.
func (k *kit) comes(a, b <-chan struct{}) bool {
	if k.bubble {
		k.settle()
		select {
		case <-a:
		case <-b:
		default:
			return false
		}
		return true
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-a:
	case <-b:
	case <-timer.C:
		return false
	}
	return true
}

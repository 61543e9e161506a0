package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/backends/redis"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/mutex"
)

// What the tests of shared/cases.md have in common. Real time cannot be avoided here: what must not happen early is compared
// exactly, what must happen soon gets slack, since the machine may be busy.
const (
	// P is how long after a name became free a waiter that missed the news asks.
	P = time.Second
	// slack is what a busy machine may add to anything.
	slack = 5 * time.Second
)

// peer is what one of several processes has: a client, a backend and a Locker of its own, and maybe a bad network.
type peer struct {
	*mutex.Locker
	t       testing.TB
	client  *goredis.Client
	backend *redis.Backend
	proxy   *redistest.Proxy // nil: none
	sent    *redistest.Counter

	mu   sync.Mutex
	kept []*lease.Handle // a handle that a test drops would be noticed
}

// peerOf returns a peer with a client of server that has opts.
func peerOf(t testing.TB, server *redistest.Server, prefix string, clientOpts []func(*goredis.Options), opts ...mutex.Option) *peer {
	t.Helper()
	p := &peer{t: t, client: server.Client(clientOpts...), sent: new(redistest.Counter)}
	p.client.AddHook(p.sent)
	p.backend = on(t, p.client, redis.WithPrefix(prefix))
	p.Locker = lockerOn(t, p.backend, opts...)
	return p
}

// near returns a peer that talks to server directly.
func near(t testing.TB, server *redistest.Server, prefix string, opts ...mutex.Option) *peer {
	t.Helper()
	return peerOf(t, server, prefix, nil, opts...)
}

// far returns a peer that talks to server through a proxy. The network is well again when the test cleans up.
func far(t testing.TB, server *redistest.Server, prefix string, opts ...mutex.Option) *peer {
	t.Helper()
	proxy := redistest.NewProxy(t, server.Addr())
	p := peerOf(t, server, prefix, []func(*goredis.Options){proxy.Via}, opts...)
	p.proxy = proxy
	t.Cleanup(p.heal)
	return p
}

// shared returns a peer on the shared server, with a prefix of its own.
func shared(t testing.TB, opts ...mutex.Option) *peer {
	t.Helper()
	server := redistest.Shared(t)
	return near(t, server, server.Prefix(), opts...)
}

// beside returns another peer on the shared server that shares p's names.
func (p *peer) beside(opts ...mutex.Option) *peer {
	p.t.Helper()
	return near(p.t, redistest.Shared(p.t), prefixOf(p.backend), opts...)
}

// lockerOn returns a Locker on b, closed when the test ends.
func lockerOn(t testing.TB, b lease.Backend, opts ...mutex.Option) *mutex.Locker {
	t.Helper()
	l, err := mutex.New(b, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) }) // tests that care have closed it
	return l
}

// heal ends a black hole, and the connections that it has damaged.
func (p *peer) heal() {
	p.proxy.BlackHole(false)
	p.proxy.Cut()
}

// vanish cuts p off for good, as if it had died, and returns the bounds of the instant at which the record of name ends unless
// somebody else does something. direct is a client on a clear path.
func (p *peer) vanish(direct *goredis.Client, name string) (notBefore, notAfter time.Time) {
	p.t.Helper()
	p.proxy.BlackHole(true)
	notBefore, _ = expiry(p.t, direct, p.backend.RecordKey(name))
	for { // until nothing is on its way any more
		time.Sleep(20 * time.Millisecond)
		later, end := expiry(p.t, direct, p.backend.RecordKey(name))
		if later.Sub(notBefore) < 15*time.Millisecond {
			return notBefore, end
		}
		notBefore = later
	}
}

// expiry returns the bounds of the instant at which key ends, on our clock.
func expiry(t testing.TB, direct *goredis.Client, key string) (notBefore, notAfter time.Time) {
	t.Helper()
	asked := time.Now()
	left, err := direct.PTTL(context.Background(), key).Result()
	answered := time.Now()
	if err != nil || left < 0 {
		t.Errorf("PTTL %s: %v, %v", key, left, err)
	}
	return asked.Add(left - time.Millisecond), answered.Add(left + 2*time.Millisecond)
}

// warm makes the server know the scripts of p, so that each operation is one request.
func (p *peer) warm() {
	p.t.Helper()
	h := p.lock("warm")
	if _, err := p.TryLock(context.Background(), "warm"); !errors.Is(err, lease.ErrHeld) {
		p.t.Fatal(err)
	}
	if err := h.Renew(context.Background()); err != nil {
		p.t.Fatal(err)
	}
	p.unlock(h)
	h, err := p.Lock(context.Background(), "warm")
	if err != nil {
		p.t.Fatal(err)
	}
	p.unlock(h)
	if err := p.backend.Release(context.Background(), lease.Claim{Name: "warm", Owner: "nobody"}); err != nil {
		p.t.Fatal(err)
	}
	p.sent.Reset()
}

// lock takes name, which must be free.
func (p *peer) lock(name string, opts ...mutex.Option) *lease.Handle {
	p.t.Helper()
	h, err := p.TryLock(context.Background(), name, opts...)
	if err != nil {
		p.t.Fatalf("TryLock(%q) of a free name: %v", name, err)
	}
	p.keep(h)
	return h
}

// unlock gives h back, which must succeed.
func (p *peer) unlock(h *lease.Handle) {
	p.t.Helper()
	if err := h.Release(context.Background()); err != nil {
		p.t.Fatalf("Release(%q): %v", h.Name(), err)
	}
}

func (p *peer) keep(h *lease.Handle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = append(p.kept, h)
}

// lockResult is what a call of Lock came to.
type lockResult struct {
	h   *lease.Handle
	err error
	at  time.Time // when it returned
}

// locking starts a call of Lock.
func (p *peer) locking(ctx context.Context, name string, opts ...mutex.Option) <-chan lockResult {
	got := make(chan lockResult, 1)
	go func() {
		h, err := p.Lock(ctx, name, opts...)
		at := time.Now()
		if (h == nil) != (err != nil) {
			p.t.Errorf("Lock returned handle %v and error %v", h, err)
		}
		p.keep(h)
		got <- lockResult{h, err, at}
	}()
	return got
}

// queued starts a call of Lock and returns when it has its place in the queue.
func (p *peer) queued(ctx context.Context, name string, opts ...mutex.Option) <-chan lockResult {
	p.t.Helper()
	before := p.backend.Parked(name)
	got := p.locking(ctx, name, opts...)
	eventually(p.t, func() bool { return p.backend.Parked(name) > before })
	return got
}

// await returns what comes out of ch, which must come within d and slack.
func await[V any](t testing.TB, what string, ch <-chan V, d time.Duration) V {
	t.Helper()
	timer := time.NewTimer(d + slack)
	defer timer.Stop()
	select {
	case v := <-ch:
		return v
	case <-timer.C:
		t.Fatalf("%s: nothing within %v", what, d+slack)
		panic("not reached")
	}
}

// granted returns the handle of a call that must succeed within d and slack.
func granted(t testing.TB, got <-chan lockResult, d time.Duration) lockResult {
	t.Helper()
	o := await(t, "Lock", got, d)
	if o.err != nil {
		t.Fatalf("Lock: %v", o.err)
	}
	return o
}

// pending fails the test if the call has returned.
func pending(t testing.TB, got <-chan lockResult) {
	t.Helper()
	select {
	case o := <-got:
		t.Fatalf("Lock returned handle %v and error %v, want it to wait", o.h, o.err)
	default:
	}
}

// wantNot fails the test if err matches any of targets.
func wantNot(t testing.TB, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if errors.Is(err, target) {
			t.Fatalf("error %q matches %q", err, target)
		}
	}
}

// wantHeld checks that all of h says that it is held.
func wantHeld(t testing.TB, h *lease.Handle) {
	t.Helper()
	if h.State() != lease.Held || !h.Valid() || isClosed(h.Lost()) || isClosed(h.Done()) || h.Err() != nil {
		t.Fatalf("%q is %v, valid %v: %v; want it held", h.Name(), h.State(), h.Valid(), h.Err())
	}
}

// wantLost waits until h is lost, for one of reasons, within d and slack, and checks that all of it says so.
func wantLost(t testing.TB, h *lease.Handle, d time.Duration, reasons ...lease.Reason) *lease.LostError {
	t.Helper()
	await(t, "the loss of "+h.Name(), h.Lost(), d)
	var lost *lease.LostError
	if h.State() != lease.Lost || h.Valid() || !isClosed(h.Done()) || !errors.As(h.Err(), &lost) || !errors.Is(lost, lease.ErrLost) {
		t.Fatalf("%q is %v, valid %v, done %v: %v; want it lost", h.Name(), h.State(), h.Valid(), isClosed(h.Done()), h.Err())
	}
	if cause := context.Cause(h.Context()); cause != h.Err() {
		t.Fatalf("%q: cause %v, want %v", h.Name(), cause, h.Err())
	}
	for _, reason := range reasons {
		if lost.Reason == reason {
			return lost
		}
	}
	t.Fatalf("lost with %v, want the reason to be in %v", lost, reasons)
	return nil
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// record returns the record of name as it is stored, "" if there is none.
func (p *peer) record(direct *goredis.Client, name string) string {
	p.t.Helper()
	v, err := direct.Get(context.Background(), p.backend.RecordKey(name)).Result()
	if err != nil && !errors.Is(err, goredis.Nil) {
		p.t.Fatal(err)
	}
	return v
}

// wantRecord fails the test unless the record of name is h's, and runs out.
func (p *peer) wantRecord(direct *goredis.Client, h *lease.Handle, ttl time.Duration) {
	p.t.Helper()
	if got, want := p.record(direct, h.Name()), fmt.Sprintf("%d ", h.Token()); !strings.HasPrefix(got, want) {
		p.t.Fatalf("record of %q is %q, want %q…", h.Name(), got, want)
	}
	if left := direct.PTTL(context.Background(), p.backend.RecordKey(h.Name())).Val(); left <= 0 || left > ttl {
		p.t.Fatalf("record of %q runs for %v, want at most %v", h.Name(), left, ttl)
	}
}

// wantFree fails the test if name has a record.
func (p *peer) wantFree(direct *goredis.Client, name string) {
	p.t.Helper()
	if got := p.record(direct, name); got != "" {
		p.t.Fatalf("record of %q is %q, want none", name, got)
	}
}

// scripts returns how often the server has run scripts since the last ResetStats.
func scripts(ctx context.Context, server *redistest.Server) int64 {
	stats := server.CommandStats(ctx)
	return stats["evalsha"] + stats["eval"]
}

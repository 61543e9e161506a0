package redis_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/mutex"
)

func TestC15_LostNewsCostsOnePoll(t *testing.T) {
	ctx := t.Context()

	// The holder may not publish, so nobody ever hears of anything.
	t.Run("NothingIsPublished", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		admin := server.Client()
		if err := admin.Do(ctx, "acl", "setuser", "mute", "on", ">pw", "~*", "resetchannels", "+@all").Err(); err != nil {
			t.Fatal(err)
		}
		a := peerOf(t, server, "c15:", []func(*goredis.Options){func(o *goredis.Options) { o.Username, o.Password = "mute", "pw" }})
		b := near(t, server, "c15:")
		h := a.lock("n")
		w := b.queued(ctx, "n")
		eventually(t, func() bool { return admin.PubSubNumSub(ctx, b.backend.Channel()).Val()[b.backend.Channel()] == 1 })
		a.unlock(h)
		b.unlock(granted(t, w, P).h)
	})

	// The release comes when the server has told the waiter that the name is held, and the waiter does not know it yet.
	t.Run("ReleasedBeforeTheSubscription", func(t *testing.T) {
		t.Parallel()
		a := shared(t)
		b := a.beside()
		a.warm()
		h := a.lock("n")
		b.client.AddHook(&afterReply{key: b.backend.RecordKey("n"), f: func() { a.unlock(h) }})
		next := granted(t, b.locking(ctx, "n"), P).h
		if next.Token() <= h.Token() {
			t.Errorf("token %d after %d", next.Token(), h.Token())
		}
		b.unlock(next)
	})

	t.Run("SubscriptionDies", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		admin := server.Client()
		a, b := near(t, server, "c15:"), near(t, server, "c15:")
		h := a.lock("n")
		for range 3 {
			w := b.queued(ctx, "n")
			eventually(t, func() bool { return admin.PubSubNumSub(ctx, b.backend.Channel()).Val()[b.backend.Channel()] == 1 })
			if n, err := admin.ClientKillByFilter(ctx, "type", "pubsub").Result(); err != nil || n == 0 {
				t.Fatalf("killed %d, %v", n, err)
			}
			a.unlock(h)
			b.unlock(granted(t, w, P).h)
			h = a.lock("n")
		}
	})
}

// afterReply is a hook that calls f once, when the first command for key has been answered and its caller does not know it yet.
type afterReply struct {
	key  string
	f    func()
	once sync.Once
}

func (r *afterReply) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (r *afterReply) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		err := next(ctx, cmd)
		if slices.Contains(cmd.Args(), any(r.key)) {
			r.once.Do(r.f)
		}
		return err
	}
}

func (r *afterReply) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

func TestC18_DeadlineHoldsBehindABlackHole(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := redistest.Start(t)
	a := far(t, server, "c18:") // a client with default options
	direct := near(t, server, "c18:")
	h := a.lock("held")
	direct.lock("other")
	parked, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
	defer cancel()
	inQueue := a.queued(parked, "other")
	a.proxy.BlackHole(true)

	for name, c := range map[string]struct {
		bound time.Duration
		call  func(ctx context.Context) error
	}{
		"Lock": {500 * time.Millisecond, func(ctx context.Context) error {
			_, err := a.Lock(ctx, "free", mutex.WithWait(500*time.Millisecond))
			return err
		}},
		"LockWithDeadline": {300 * time.Millisecond, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			defer cancel()
			_, err := a.Lock(ctx, "free")
			return err
		}},
		"TryLock": {200 * time.Millisecond, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			_, err := a.TryLock(ctx, "free")
			return err
		}},
		"Renew": {200 * time.Millisecond, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			return h.Renew(ctx)
		}},
	} {
		begun := time.Now()
		err := c.call(ctx)
		took := time.Since(begun)
		wantErr(t, err, context.DeadlineExceeded)
		wantNot(t, err, lease.ErrHeld, lease.ErrLost, lease.ErrPermanent)
		if took < c.bound || took > c.bound+2*time.Second { // the client's own limit is 5 s, four times
			t.Errorf("%s: took %v, want %v", name, took, c.bound)
		}
	}
	o := await(t, "the parked call", inQueue, 1500*time.Millisecond)
	wantErr(t, o.err, context.DeadlineExceeded)
	wantHeld(t, h) // its lease is long

	a.heal()
	eventually(t, func() bool { return h.Renew(ctx) == nil })
	eventually(t, a.backend.Quiet) // also what was abandoned in the hole
	if err := h.Release(ctx); err != nil {
		t.Error(err)
	}
}

// wantTakeOver checks that the call succeeded neither before the lease of who is gone can have ended, nor long after.
func wantTakeOver(t testing.TB, got <-chan lockResult, notBefore, notAfter time.Time) *lease.Handle {
	t.Helper()
	o := granted(t, got, time.Until(notAfter)+P)
	if o.at.Before(notBefore) {
		t.Errorf("took over %v before the lease ended", notBefore.Sub(o.at))
	}
	return o.h
}

func TestC20_TakeOverAfterACrash(t *testing.T) {
	t.Parallel()
	const ttl = 900 * time.Millisecond
	ctx := t.Context()
	server := redistest.Start(t)
	a, b := far(t, server, "c20:", mutex.WithTTL(ttl)), near(t, server, "c20:", mutex.WithTTL(ttl))
	h := a.lock("n")
	w := b.queued(ctx, "n")
	renewed := h.TrustedUntil()
	eventually(t, func() bool { return h.TrustedUntil().After(renewed) })
	notBefore, notAfter := a.vanish(b.client, "n")
	pending(t, w)
	b.unlock(wantTakeOver(t, w, notBefore, notAfter))
	wantLost(t, h, 0, lease.Expired)
}

// A waiter with a short lease does not judge a holder with a long one by its own.
func TestC21_WaiterGoesByTheHoldersTTL(t *testing.T) {
	t.Parallel()
	const long, short = 2 * time.Second, 200 * time.Millisecond
	ctx := t.Context()
	server := redistest.Start(t)
	a, b := far(t, server, "c21:", mutex.WithTTL(long)), near(t, server, "c21:", mutex.WithTTL(short))
	h := a.lock("n")
	w := b.queued(ctx, "n")
	for renewals, last := 0, h.TrustedUntil(); renewals < 4; {
		eventually(t, func() bool { return h.TrustedUntil().After(last) })
		last = h.TrustedUntil()
		renewals++
		pending(t, w)
	}
	notBefore, notAfter := a.vanish(b.client, "n")
	next := wantTakeOver(t, w, notBefore, notAfter)
	_ = next.Release(ctx) // so short a lease may be over on a busy machine
	wantLost(t, h, 0, lease.Expired)
}

// To 2 ms, which is what Redis rounds by: the key's end is set in whole milliseconds, and a key is gone when its last one is over.
func TestC22_TryAtTheEdgeOfExpiry(t *testing.T) {
	const ttl = 60 * time.Millisecond
	a := shared(t)
	ctx := t.Context()
	a.warm()
	for i := range 20 {
		name := fmt.Sprint("n", i)
		sent := time.Now()
		if _, err := a.backend.Acquire(ctx, lease.Request{Name: name, Owner: "dead", TTL: ttl}); err != nil {
			t.Fatal(err)
		}
		notBefore, notAfter := sent.Add(ttl-time.Millisecond), time.Now().Add(ttl+2*time.Millisecond)
		for {
			sent := time.Now()
			h, err := a.TryLock(ctx, name)
			if err == nil {
				if now := time.Now(); now.Before(notBefore) {
					t.Fatalf("granted %v before the end of the lease", notBefore.Sub(now))
				}
				a.unlock(h)
				break
			}
			if !errors.Is(err, lease.ErrHeld) {
				t.Fatal(err)
			}
			if sent.After(notAfter) {
				t.Fatalf("refused %v after the end of the lease", sent.Sub(notAfter))
			}
		}
	}
}

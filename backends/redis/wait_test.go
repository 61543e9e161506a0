package redis_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/backends/redis"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/lease"
)

// waiting is a call of Wait on a goroutine of its own.
type waiting struct {
	owner string
	done  chan struct{}
	grant lease.Grant
	err   error
}

// wait begins to wait, and returns when the owner is parked.
func wait(t testing.TB, ctx context.Context, b *redis.Backend, req lease.Request) *waiting {
	t.Helper()
	w := &waiting{owner: req.Owner, done: make(chan struct{})}
	parked := b.Parked(req.Name)
	go func() {
		defer close(w.done)
		w.grant, w.err = b.Wait(ctx, req, nil)
	}()
	eventually(t, func() bool { return b.Parked(req.Name) == parked+1 })
	return w
}

// granted blocks until w has the lease and returns its claim.
func (w *waiting) granted(t testing.TB, name string) lease.Claim {
	t.Helper()
	select {
	case <-w.done:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s still waits", w.owner)
	}
	if w.err != nil {
		t.Fatalf("%s: %v", w.owner, w.err)
	}
	return lease.Claim{Name: name, Owner: w.owner, Token: w.grant.Token}
}

// Two processes take turns strictly in the order in which they came, with rising tokens, and each grant's Since is not before
// the release that made it and not after its arrival.
func TestWait_FIFOAcrossProcesses(t *testing.T) {
	a, client := open(t)
	b := on(t, client, redis.WithPrefix(prefixOf(a)))
	held := acquire(t, a, "n", "holder")
	var queue []*waiting
	for i := range 10 {
		queue = append(queue, wait(t, t.Context(), []*redis.Backend{a, b}[i%3%2], request("n", fmt.Sprintf("w%d", i))))
	}
	time.Sleep(50 * time.Millisecond) // lets both subscriptions come up; without it the polls would help
	for i, w := range queue {
		before := time.Now()
		release(t, a, held)
		next := w.granted(t, "n")
		if next.Token <= held.Token {
			t.Fatalf("token %d after %d", next.Token, held.Token)
		}
		if since := w.grant.Since; !since.IsZero() && (since.After(time.Now()) || since.Before(before.Add(-time.Second))) {
			t.Fatalf("since %v, released at %v", since, before)
		}
		for _, other := range queue[i+1:] {
			select {
			case <-other.done:
				t.Fatalf("%s overtook", other.owner)
			default:
			}
		}
		held = next
	}
	release(t, b, held)
}

func prefixOf(b *redis.Backend) string {
	key := b.RecordKey("x")
	return key[:len(key)-len("{x}:l")]
}

// The price of things, as the server counts them.
func TestBackend_Requests(t *testing.T) {
	server := redistest.Shared(t)
	client := server.Client()
	var counter redistest.Counter
	client.AddHook(&counter)
	a := on(t, client, redis.WithPrefix(server.Prefix()))
	b := on(t, client, redis.WithPrefix(prefixOf(a)))
	release(t, a, acquire(t, a, "warm", "o")) // loads scripts
	if g, err := a.Wait(t.Context(), request("warm", "o"), nil); err != nil {
		t.Fatal(err)
	} else {
		release(t, a, lease.Claim{Name: "warm", Owner: "o", Token: g.Token})
	}

	t.Run("AcquireAndRelease", func(t *testing.T) {
		counter.Reset()
		release(t, a, acquire(t, a, "n", "o"))
		if got := counter.Requests(); got != 2 {
			t.Fatalf("got %d requests, want 2", got)
		}
	})
	t.Run("WaitForAFreeName", func(t *testing.T) {
		counter.Reset()
		g, err := a.Wait(t.Context(), request("n", "o"), nil)
		if err != nil {
			t.Fatal(err)
		}
		release(t, a, lease.Claim{Name: "n", Owner: "o", Token: g.Token})
		if got := counter.Requests(); got != 2 {
			t.Fatalf("got %d requests, want 2", got)
		}
	})
	t.Run("FailedTry", func(t *testing.T) {
		held := acquire(t, a, "n", "o")
		counter.Reset()
		_, err := a.Acquire(t.Context(), request("n", "o2"))
		wantErr(t, err, lease.ErrHeld)
		if got := counter.Requests(); got != 1 {
			t.Fatalf("got %d requests, want 1", got)
		}
		release(t, a, held)
	})
	for name, other := range map[string]*redis.Backend{"HandOffInside": a, "HandOffAcross": b} {
		t.Run(name, func(t *testing.T) {
			turn := []*redis.Backend{a, other}
			held := acquire(t, a, "n", "o0")
			first := wait(t, t.Context(), other, request("n", "o1"))
			time.Sleep(100 * time.Millisecond) // the subscription comes up and the poll that follows is over
			release(t, a, held)
			held = first.granted(t, "n")
			counter.Reset()
			begun, cycles := time.Now(), 50
			for i := range cycles {
				w := wait(t, t.Context(), turn[i%2], request("n", fmt.Sprint("c", i)))
				release(t, turn[(i+1)%2], held)
				held = w.granted(t, "n")
			}
			polls := 2 * (2 + int(time.Since(begun)/time.Second)) // each process may poll once a second and once on subscribing
			if got := counter.Requests(); got < 2*cycles || got > 2*cycles+polls {
				t.Errorf("got %d requests for %d cycles, want 2 each and at most %d polls", got, cycles, polls)
			}
			release(t, a, held)
		})
	}
}

// A lost message costs one poll, even if the subscription is gone for good.
func TestWait_MissedMessage(t *testing.T) {
	server := redistest.Start(t)
	a, b := on(t, server.Client()), on(t, server.Client())
	admin := server.Client()
	held := acquire(t, a, "n", "o")
	w := wait(t, t.Context(), b, request("n", "w"))
	eventually(t, func() bool { return admin.PubSubNumSub(t.Context(), b.Channel()).Val()[b.Channel()] == 1 })
	if n, err := admin.ClientKillByFilter(t.Context(), "type", "pubsub").Result(); err != nil || n == 0 {
		t.Fatalf("killed %d, %v", n, err)
	}
	release(t, a, held)
	release(t, b, w.granted(t, "n"))
}

// The waiters of a dead process are passed over once their places are given up; a live one behind them is served.
func TestWait_DeadProcessIsSkipped(t *testing.T) {
	t.Parallel()
	a, client := open(t)
	b := on(t, client, redis.WithPrefix(prefixOf(a)))
	ghost := on(t, client, redis.WithPrefix(prefixOf(a)))
	held := acquire(t, a, "n", "o")
	for i := range 5 {
		wait(t, t.Context(), ghost, request("n", fmt.Sprint("ghost", i)))
	}
	_ = ghost.Close() // nobody withdraws, nobody polls
	w := wait(t, t.Context(), b, request("n", "w"))
	time.Sleep(redis.KeepPlaces())
	release(t, a, held)
	release(t, b, w.granted(t, "n"))
	for _, key := range a.Keys("n")[2:4] {
		if client.Exists(t.Context(), key).Val() != 0 {
			t.Errorf("%s is left over", key)
		}
	}
}

// A holder that dies costs its TTL and little more, and not a moment less.
func TestWait_HolderDies(t *testing.T) {
	b, _ := open(t)
	begun := time.Now()
	if _, err := b.Acquire(t.Context(), lease.Request{Name: "n", Owner: "o", TTL: 500 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	w := wait(t, t.Context(), b, request("n", "w"))
	release(t, b, w.granted(t, "n"))
	if took := time.Since(begun); took < 499*time.Millisecond || took > 5*time.Second {
		t.Fatalf("took over after %v", took)
	}
}

func TestWait_CancelledWaiterIsSkippedAndGivesBack(t *testing.T) {
	b, client := open(t)
	held := acquire(t, b, "n", "o")
	ctx, cancel := context.WithCancel(t.Context())
	first := wait(t, ctx, b, request("n", "first"))
	second := wait(t, t.Context(), b, request("n", "second"))
	cancel()
	<-first.done
	wantErr(t, first.err, context.Canceled)
	if wantNot := lease.ErrHeld; fmt.Sprint(first.err) == fmt.Sprint(wantNot) {
		t.Fatal("held, although its place may remain")
	}
	if err := b.Release(t.Context(), lease.Claim{Name: "n", Owner: "first"}); err != nil {
		t.Fatal(err)
	}
	if members := client.ZRange(t.Context(), b.Keys("n")[2], 0, -1).Val(); !slices.Equal(members, []string{"second"}) {
		t.Fatalf("in the queue: %v", members)
	}
	release(t, b, held)
	held = second.granted(t, "n")

	// The grant finds nobody there; the withdrawal hands it on.
	ctx, cancel = context.WithCancel(t.Context())
	gone := wait(t, ctx, b, request("n", "gone"))
	last := wait(t, t.Context(), b, request("n", "last"))
	cancel()
	<-gone.done
	release(t, b, held)
	if err := b.Release(t.Context(), lease.Claim{Name: "n", Owner: "gone"}); err != nil {
		t.Fatal(err)
	}
	release(t, b, last.granted(t, "n"))
}

// A single try does not overtake those who wait, even when the name is free.
func TestAcquire_DoesNotOvertake(t *testing.T) {
	b, client := open(t)
	acquire(t, b, "n", "o")
	w := wait(t, t.Context(), b, request("n", "w"))
	client.Del(t.Context(), b.RecordKey("n"))
	_, err := b.Acquire(t.Context(), request("n", "try"))
	wantErr(t, err, lease.ErrHeld)
	release(t, b, w.granted(t, "n"))
}

// A flushed store forgets the queue; the waiters queue again and are served.
func TestWait_SurvivesFlush(t *testing.T) {
	server := redistest.Start(t)
	b := on(t, server.Client())
	acquire(t, b, "n", "o")
	waiters := []*waiting{
		wait(t, t.Context(), b, request("n", "w1")), wait(t, t.Context(), b, request("n", "w2")), wait(t, t.Context(), b, request("n", "w3")),
	}
	server.FlushAll(t.Context())
	for range waiters { // in any order
		select {
		case <-waiters[0].done:
			release(t, b, waiters[0].granted(t, "n"))
			waiters[0].done = nil
		case <-waiters[1].done:
			release(t, b, waiters[1].granted(t, "n"))
			waiters[1].done = nil
		case <-waiters[2].done:
			release(t, b, waiters[2].granted(t, "n"))
			waiters[2].done = nil
		case <-time.After(20 * time.Second):
			t.Fatal("somebody waits for ever")
		}
	}
}

// A grant whose message was lost and whose claim is over takes the place with it; the waiter gets another.
func TestWait_LostGrantIsNotTheEnd(t *testing.T) {
	b, client := open(t)
	acquire(t, b, "n", "o")
	w := wait(t, t.Context(), b, request("n", "w"))
	ctx := t.Context()
	k := b.Keys("n")
	client.ZRem(ctx, k[2], "w")
	client.HDel(ctx, k[3], "w")
	client.Del(ctx, k[0])
	release(t, b, w.granted(t, "n"))
}

func TestWait_HeldIsTold(t *testing.T) {
	b, _ := open(t)
	held := acquire(t, b, "n", "o")
	told := make(chan lease.Holder, 10)
	done := make(chan error)
	go func() {
		_, err := b.Wait(t.Context(), request("n", "w"), func(h lease.Holder) { told <- h })
		done <- err
	}()
	for range 2 { // by its own reply, and by a poll
		if h := <-told; h.Label != "label of o" || h.Token != held.Token || h.Remaining <= 0 || h.Remaining > ttl {
			t.Fatalf("got %+v", h)
		}
	}
	release(t, b, held)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// Whoever may publish can send what they like: none of it grants, nothing breaks.
func TestWait_HostileMessages(t *testing.T) {
	b, client := open(t)
	ctx := t.Context()
	held := acquire(t, b, "n", "o")
	w := wait(t, ctx, b, request("n", "w"))
	eventually(t, func() bool { return client.PubSubNumSub(ctx, b.Channel()).Val()[b.Channel()] == 1 })
	key := b.RecordKey("n")
	for _, payload := range []string{
		"", " ", "    ", "1 w 1 1", "0 w 1 1 " + key, "-1 w 1 1 " + key, "9007199254740992 w 1 1 " + key, "1 w 1 0 " + key, "1 w 1 3001 " + key,
		"1 w 1 99999999999999999999 " + key, "1 w -1 5 " + key, "1 x 1 1 " + key, "1 w 1 1 " + key + "x", "1e3 w 1 1 " + key, "\x00\xff",
	} {
		client.Publish(ctx, b.Channel(), payload)
	}
	select {
	case <-w.done:
		t.Fatalf("granted %+v, %v", w.grant, w.err)
	case <-time.After(50 * time.Millisecond):
	}
	release(t, b, held)
	release(t, b, w.granted(t, "n"))
}

// Waiters leave nothing behind: no subscription, no goroutine, no place.
func TestWait_CancelledCrowd(t *testing.T) {
	b, client := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	var held []lease.Claim
	var wg sync.WaitGroup
	for n := range 20 {
		name := fmt.Sprint("n", n)
		held = append(held, acquire(t, b, name, "o"))
		for i := range 50 {
			wg.Go(func() {
				owner := fmt.Sprint("w", i)
				_, err := b.Wait(ctx, request(name, owner), nil)
				wantErr(t, err, context.Canceled)
				if err := b.Release(t.Context(), lease.Claim{Name: name, Owner: owner}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	for n := range 20 {
		eventually(t, func() bool { return b.Parked(fmt.Sprint("n", n)) == 50 })
	}
	if n := client.PubSubNumSub(t.Context(), b.Channel()).Val()[b.Channel()]; n != 1 {
		t.Errorf("%d subscriptions", n)
	}
	cancel()
	wg.Wait()
	for _, claim := range held {
		release(t, b, claim)
		if n := client.Exists(t.Context(), b.Keys(claim.Name)[2:4]...).Val(); n != 0 {
			t.Errorf("%s: a queue is left", claim.Name)
		}
	}
	eventually(t, b.Quiet)
}

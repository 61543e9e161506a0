package redis_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/mutex"
)

// Many holders, each behind a network of its own that goes silent at some moment. Each knows that it has lost before its record
// can have expired, and so before the one who waits has it.
func TestC37_PartitionedHolderKnowsFirst(t *testing.T) {
	const runs = 100
	const ttl = 3 * time.Second
	server := redistest.Start(t)
	direct := server.Client(func(o *goredis.Options) { o.PoolSize = runs })
	b := near(t, server, "c37:", mutex.WithTTL(ttl))
	b.warm()
	ctx := t.Context()
	var mu sync.Mutex
	latest, least := -ttl, ttl // of all runs: the loss, counted from the end of trust; its lead over the waiter
	run := func(i int, a *peer) error {
		name := fmt.Sprint("n", i)
		h, err := a.TryLock(ctx, name)
		if err != nil {
			return err
		}
		a.keep(h)
		waiting := b.locking(ctx, name)
		for b.backend.Parked(name) == 0 {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(ttl/3 + rand.N(ttl/3)) // renewed once, and some part of the way to the next
		a.proxy.BlackHole(true)
		lostAt := make(chan time.Time, 1)
		go func() {
			<-h.Lost()
			lostAt <- time.Now()
		}()
		time.Sleep(50 * time.Millisecond) // what was on its way has arrived, or never will
		asked := time.Now()
		left, err := direct.PTTL(ctx, a.backend.RecordKey(name)).Result()
		if err != nil || left <= 0 {
			return fmt.Errorf("record runs for %v, %v", left, err)
		}
		end := asked.Add(left - time.Millisecond) // the record is there until then, at least
		lost := <-lostAt
		trust := h.TrustedUntil()
		remaining, err := direct.PTTL(ctx, a.backend.RecordKey(name)).Result()
		if err != nil {
			return err
		}
		got := <-waiting
		if got.err != nil {
			return got.err
		}
		defer got.h.Close()
		mu.Lock()
		latest, least = max(latest, lost.Sub(trust)), min(least, got.at.Sub(lost))
		mu.Unlock()
		switch {
		case trust.After(end):
			return fmt.Errorf("trusted for %v longer than the record lives", trust.Sub(end))
		case !lost.Before(got.at):
			return fmt.Errorf("lost %v after the other had it", lost.Sub(got.at))
		case !lost.Before(end) && remaining <= 0:
			return fmt.Errorf("lost %v after the end of the record", lost.Sub(end))
		case lost.Before(trust):
			return fmt.Errorf("lost %v before the end of trust: %v", trust.Sub(lost), h.Err())
		case got.at.Before(end):
			return fmt.Errorf("taken over %v before the end of the record", end.Sub(got.at))
		}
		return nil
	}
	var wg sync.WaitGroup
	for i := range runs {
		a := far(t, server, "c37:", mutex.WithTTL(ttl))
		wg.Go(func() {
			if err := run(i, a); err != nil {
				t.Errorf("run %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	t.Logf("the loss was told at most %v after the end of trust, at least %v before the other had the lease", latest, least)
}

func TestC38_RecordIsGoneOrReplaced(t *testing.T) {
	t.Parallel()
	const ttl, every = 6 * time.Second, 300 * time.Millisecond // far from the end of trust
	ctx := t.Context()
	for name, c := range map[string]struct {
		harm   func(server *redistest.Server, client *goredis.Client, key string) error
		reason lease.Reason
	}{
		"DEL": {func(_ *redistest.Server, client *goredis.Client, key string) error { return client.Del(ctx, key).Err() }, lease.Missing},
		"FLUSHALL": {func(server *redistest.Server, _ *goredis.Client, _ string) error {
			server.FlushAll(ctx)
			return nil
		}, lease.Missing},
		"Restart": {func(server *redistest.Server, _ *goredis.Client, _ string) error {
			server.Restart()
			return nil
		}, lease.Missing},
		"Eviction": {func(_ *redistest.Server, client *goredis.Client, _ string) error {
			client.ConfigSet(ctx, "maxmemory-policy", "volatile-ttl")
			client.ConfigSet(ctx, "maxmemory", "1")
			_ = client.Set(ctx, "more", "data", 0) // refused, but room was made
			return client.ConfigSet(ctx, "maxmemory", "0").Err()
		}, lease.Missing},
		"Overwritten": {func(_ *redistest.Server, client *goredis.Client, key string) error {
			return client.Set(ctx, key, "1 somebody - else", time.Hour).Err()
		}, lease.Taken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			direct := server.Client()
			a := near(t, server, "c38:", mutex.WithTTL(ttl), mutex.WithRenewEvery(every))
			h := a.lock("n")
			key := a.backend.RecordKey("n")
			if err := c.harm(server, direct, key); err != nil {
				t.Fatal(err)
			}
			harmed := direct.Get(ctx, key).Val()
			wantLost(t, h, every, c.reason)
			a.sent.Reset()
			server.ResetStats(ctx)
			time.Sleep(3 * every) // nothing may come
			if n := a.sent.Total(); n != 0 {
				t.Errorf("%d commands after the loss", n)
			}
			if n := scripts(ctx, server); n != 0 {
				t.Errorf("%d scripts after the loss", n)
			}
			if c.reason == lease.Missing {
				a.wantFree(direct, "n")
				return
			}
			if got := direct.Get(ctx, key).Val(); got != harmed || got == "" {
				t.Errorf("the other's record is %q, was %q", got, harmed)
			}
			if left := direct.PTTL(ctx, key).Val(); left > time.Hour || left < time.Hour-time.Minute {
				t.Errorf("the other's record runs for %v", left)
			}
		})
	}
}

func TestC40_BadNetworkIsNoLoss(t *testing.T) {
	t.Parallel()
	const ttl, hold = 3 * time.Second, 9 * time.Second
	server := redistest.Start(t)
	a := far(t, server, "c40:", mutex.WithTTL(ttl))
	var held []*lease.Handle
	for i := range 20 {
		held = append(held, a.lock(fmt.Sprint("n", i)))
	}
	a.proxy.CutIdle(500 * time.Millisecond)
	a.proxy.DelayFraction(0.05, 300*time.Millisecond)
	time.Sleep(hold)
	for _, h := range held {
		wantHeld(t, h)
	}
	if total := a.proxy.Stats().Total; total < 3 {
		t.Errorf("only %d connections: none was cut", total)
	}
	a.proxy.CutIdle(0)
	a.proxy.DelayFraction(0, 0)
	for _, h := range held {
		if err := h.Release(t.Context()); errors.Is(err, lease.ErrLost) {
			t.Error(err)
		}
	}
}

// span is a time during which a worker issued ids of a slot.
type span struct {
	slot, worker int
	from, to     time.Time
}

func TestC44_WorkerIDsNeverComeOutTwice(t *testing.T) {
	t.Parallel()
	const workers, slots, ttl = 3, 2, 750 * time.Millisecond
	server := redistest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var spans []span
	var holds, losses [slots]atomic.Int64 // by slot: how many hold it, how often it was lost
	var ids atomic.Int64

	// issue gives out ids of a slot for as long as the lease may be relied on.
	issue := func(worker, slot int, h *lease.Handle) {
		s := span{slot: slot, worker: worker}
		holds[slot].Add(1)
		defer holds[slot].Add(-1)
		for ctx.Err() == nil {
			now := time.Now()
			if !now.Before(h.TrustedUntil()) || isClosed(h.Lost()) {
				losses[slot].Add(1)
				break
			}
			if s.from.IsZero() {
				s.from = now
			}
			s.to = now
			ids.Add(1)
			time.Sleep(time.Millisecond)
		}
		if !s.from.IsZero() {
			mu.Lock()
			defer mu.Unlock()
			spans = append(spans, s)
		}
	}
	var wg sync.WaitGroup
	var peers []*peer
	for worker := range workers {
		a := far(t, server, "c44:", mutex.WithTTL(ttl))
		peers = append(peers, a)
		wg.Go(func() {
			for slot := worker; ctx.Err() == nil; slot++ {
				h, err := a.TryLock(ctx, fmt.Sprint("slot", slot%slots))
				if err != nil {
					time.Sleep(10 * time.Millisecond)
					continue
				}
				issue(worker, slot%slots, h)
				_ = h.Close()
			}
		})
	}
	taken := func() bool { return holds[0].Load() > 0 && holds[1].Load() > 0 }
	eventually(t, taken)

	for end := time.Now().Add(6 * time.Second); time.Now().Before(end); {
		a := peers[rand.N(workers)]
		a.proxy.BlackHole(true)
		time.Sleep(rand.N(3 * ttl / 2))
		a.heal()
		time.Sleep(rand.N(ttl / 2))
	}
	eventually(t, taken)
	for _, a := range peers {
		a.proxy.BlackHole(true)
	}
	time.Sleep(4 * ttl)
	if n := holds[0].Load() + holds[1].Load(); n != 0 {
		t.Errorf("%d slots are in use although nobody can have renewed", n)
	}
	for _, a := range peers {
		a.heal()
	}
	recovered := time.Now()
	eventually(t, taken)
	if took := time.Since(recovered); took > ttl+P+slack {
		t.Errorf("slots were in use again only after %v", took)
	}
	cancel()
	wg.Wait()

	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	var last [slots]span
	for _, s := range spans {
		if p := last[s.slot]; p.worker != s.worker && !p.to.Before(s.from) {
			t.Errorf("slot %d: worker %d issued until %v after worker %d had begun", s.slot, p.worker, p.to.Sub(s.from), s.worker)
		}
		if s.to.After(last[s.slot].to) {
			last[s.slot] = s
		}
	}
	t.Logf("%d ids in %d spans, %d losses", ids.Load(), len(spans), losses[0].Load()+losses[1].Load())
	if losses[0].Load() == 0 || losses[1].Load() == 0 {
		t.Error("a slot was never lost: the test shows nothing")
	}
}

func TestC61_RenewAsksTheStore(t *testing.T) {
	a := shared(t)
	direct := redistest.Shared(t).Client()
	ctx := t.Context()
	for name, between := range map[string]func(){
		"Asked": func() {},
		"AfterACutConnection": func() {
			if err := direct.ClientKillByFilter(ctx, "type", "normal", "skipme", "yes").Err(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		h := a.lock(name)
		direct.Del(ctx, a.backend.RecordKey(name))
		wantHeld(t, h) // what is asked of local clocks only
		between()
		err := h.Renew(ctx)
		wantErr(t, err, lease.ErrLost)
		if !isClosed(h.Lost()) {
			t.Error("Renew says lost, Lost does not")
		}
		wantLost(t, h, 0, lease.Missing)
		a.wantFree(direct, name)
	}
}

// The server's clock is stepped: seen from the holder, its record is gone early.
func TestC63_ServerForgetsEarly(t *testing.T) {
	t.Parallel()
	const ttl = 1800 * time.Millisecond
	ctx := t.Context()
	a := shared(t, mutex.WithTTL(ttl))
	h := a.lock("n")
	time.Sleep(ttl / 2)
	wantHeld(t, h)
	a.client.Del(ctx, a.backend.RecordKey("n"))
	wantLost(t, h, ttl/3, lease.Missing)
	a.sent.Reset()
	time.Sleep(ttl / 2) // nothing may come
	if n := a.sent.Total(); n != 0 {
		t.Errorf("%d commands after the loss", n)
	}
	a.wantFree(a.client, "n")
}

// The server is stopped, as a suspended or frozen process, for longer than the lease.
func TestSuspendedServer_HolderKnowsFirst(t *testing.T) {
	t.Parallel()
	const ttl = 900 * time.Millisecond
	ctx := t.Context()
	server := redistest.Start(t)
	a, b := near(t, server, "frozen:", mutex.WithTTL(ttl)), near(t, server, "frozen:", mutex.WithTTL(ttl))
	h := a.lock("n")
	w := b.queued(ctx, "n")
	long := b.lock("long", mutex.WithTTL(30*time.Second))
	server.Pause()
	wantLost(t, h, ttl, lease.Expired)
	lost := time.Now()
	if early := h.TrustedUntil().Sub(lost); early > 0 {
		t.Errorf("lost %v before the end of trust", early)
	}
	time.Sleep(ttl)
	pending(t, w)
	server.Resume()
	o := granted(t, w, P)
	if !o.at.After(lost) {
		t.Error("taken over before the loss was told")
	}
	if o.h.Token() <= h.Token() {
		t.Errorf("token %d after %d", o.h.Token(), h.Token())
	}
	wantErr(t, h.Release(ctx), lease.ErrLost)
	b.wantRecord(b.client, o.h, ttl)
	if err := long.Renew(ctx); err != nil {
		t.Errorf("a lease longer than the stop: %v", err)
	}
	wantHeld(t, long)
}

func TestDo_LossEndsTheWork(t *testing.T) {
	a := shared(t, mutex.WithTTL(30*time.Second), mutex.WithRenewEvery(100*time.Millisecond))
	ctx := t.Context()
	cleanUp := errors.New("what the work made of it")
	err := a.Do(ctx, "n", func(ctx context.Context, h *lease.Handle) error {
		if lease.FromContext(ctx) != h {
			t.Error("the context does not carry the handle")
		}
		a.client.Del(ctx, a.backend.RecordKey("n"))
		await(t, "the end of the work's context", ctx.Done(), 100*time.Millisecond)
		wantErr(t, context.Cause(ctx), lease.ErrLost)
		return cleanUp
	})
	wantErr(t, err, cleanUp, lease.ErrLost)
	var lost *lease.LostError
	if !errors.As(err, &lost) || lost.Reason != lease.Missing {
		t.Errorf("got %v, want the reason", err)
	}

	// The work notices nothing, and is told by Do.
	err = a.Do(ctx, "n", func(ctx context.Context, h *lease.Handle) error {
		return a.client.Del(ctx, a.backend.RecordKey("n"), a.backend.Keys("n")[1]).Err()
	})
	wantErr(t, err, lease.ErrLost)
	a.wantFree(a.client, "n")

	// Nothing is lost.
	if err := a.Do(ctx, "n", func(context.Context, *lease.Handle) error { return nil }); err != nil {
		t.Error(err)
	}
	a.wantFree(a.client, "n")
}

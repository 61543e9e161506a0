package redis_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/backends/redis"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/mutex"
)

// inUse is how many connections of client's pool are in use.
func inUse(client *goredis.Client) int {
	s := client.PoolStats()
	return int(s.TotalConns) - int(s.IdleConns)
}

func TestC73_EveryPathEndsAtTheBaseline(t *testing.T) {
	const rounds, together = 1000, 20
	ctx := t.Context()
	server := redistest.Start(t)
	other := near(t, server, "c73:")
	other.lock("held", mutex.WithTTL(time.Hour))
	a := near(t, server, "c73:", mutex.WithTTL(30*time.Second))
	a.warm()
	a.client.HSet(ctx, a.backend.RecordKey("hash"), "f", "v")
	lost := func(name string) (*lease.Handle, error) {
		h, err := a.TryLock(ctx, name)
		if err != nil {
			return nil, err
		}
		if err := a.client.Del(ctx, a.backend.RecordKey(name)).Err(); err != nil {
			return nil, err
		}
		if err := h.Renew(ctx); !errors.Is(err, lease.ErrLost) {
			return nil, fmt.Errorf("renew: %v, want it lost", err)
		}
		return h, nil
	}
	want := func(err error, target error) error {
		if errors.Is(err, target) {
			return nil
		}
		return fmt.Errorf("got %v, want %v", err, target)
	}
	paths := []struct {
		name string
		path func(name string) error
	}{
		{"Release", func(name string) error {
			h, err := a.TryLock(ctx, name)
			if err != nil {
				return err
			}
			return h.Release(ctx)
		}},
		{"LossThenRelease", func(name string) error {
			h, err := lost(name)
			if err != nil {
				return err
			}
			return want(h.Release(ctx), lease.ErrLost)
		}},
		{"LossWithoutRelease", func(name string) error { _, err := lost(name); return err }},
		{"FailedTry", func(string) error { _, err := a.TryLock(ctx, "held"); return want(err, lease.ErrHeld) }},
		{"CancelledWait", func(string) error {
			ctx, cancel := context.WithTimeout(ctx, rand.N(4*time.Millisecond))
			defer cancel()
			_, err := a.Lock(ctx, "held")
			return want(err, context.DeadlineExceeded)
		}},
		{"TimedOutWait", func(string) error {
			_, err := a.Lock(ctx, "held", mutex.WithWait(1+rand.N(4*time.Millisecond)))
			return want(err, context.DeadlineExceeded)
		}},
		{"BackendError", func(string) error { _, err := a.TryLock(ctx, "hash"); return want(err, lease.ErrPermanent) }},
		{"ConstructorError", func(string) error {
			_, err := redis.New(a.client, redis.WithPrefix("{"))
			if err := want(err, lease.ErrInvalid); err != nil {
				return err
			}
			_, err = mutex.New(a.backend, mutex.WithTTL(-1))
			return want(err, lease.ErrInvalid)
		}},
		{"Close", func(name string) error {
			b, err := redis.New(a.client, redis.WithPrefix("c73:"))
			if err != nil {
				return err
			}
			l, err := mutex.New(b)
			if err != nil {
				return err
			}
			if _, err := l.TryLock(ctx, name); err != nil {
				return err
			}
			if err := l.Close(ctx); err != nil {
				return err
			}
			return b.Close()
		}},
	}
	eventually(t, func() bool { return other.backend.Quiet() && a.backend.Quiet() })
	baseline := runtime.NumGoroutine()
	for _, p := range paths {
		var next atomic.Int64
		var wg sync.WaitGroup
		for range together {
			wg.Go(func() {
				for i := next.Add(1); i <= rounds; i = next.Add(1) {
					if err := p.path(fmt.Sprint(p.name, i)); err != nil {
						t.Errorf("%s: %v", p.name, err)
						return
					}
				}
			})
		}
		wg.Wait()
		eventually(t, a.backend.Quiet)
		if n := inUse(a.client); n != 0 {
			t.Errorf("%s: %d connections in use", p.name, n)
		}
		for end := time.Now().Add(slack); runtime.NumGoroutine() > baseline && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		if n := runtime.NumGoroutine(); n > baseline {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%s: %d goroutines, %d before:\n%s", p.name, n, baseline, stacks[:runtime.Stack(stacks, true)])
		}
	}
	for _, key := range a.client.Keys(ctx, "*:l").Val() {
		if key != a.backend.RecordKey("held") && key != a.backend.RecordKey("hash") {
			t.Errorf("%s is left over", key)
		}
	}
}

// logKeeper keeps the names that warnings bear.
type logKeeper struct {
	mu    sync.Mutex
	names []string
}

func (k *logKeeper) Enabled(context.Context, slog.Level) bool { return true }
func (k *logKeeper) WithAttrs([]slog.Attr) slog.Handler       { return k }
func (k *logKeeper) WithGroup(string) slog.Handler            { return k }

func (k *logKeeper) Handle(_ context.Context, r slog.Record) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "name" && r.Level == slog.LevelWarn {
			k.names = append(k.names, a.Value.String())
		}
		return true
	})
	return nil
}

func (k *logKeeper) count(name string) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, other := range k.names {
		if other == name {
			n++
		}
	}
	return n
}

func TestC76_DroppedHandle(t *testing.T) {
	const ttl = 900 * time.Millisecond
	var warnings logKeeper
	before := slog.Default()
	slog.SetDefault(slog.New(&warnings))
	defer func() {
		slog.SetDefault(before)
		log.SetOutput(os.Stderr)
		log.SetFlags(log.LstdFlags)
	}()
	a := shared(t, mutex.WithTTL(ttl))
	for name, c := range map[string]struct {
		opts     []mutex.Option
		warnings int
	}{
		"Default":     {nil, 1},
		"LongestHold": {[]mutex.Option{mutex.WithMaxHold(20 * time.Millisecond)}, 0}, // ends before anybody can collect it
	} {
		t.Run(name, func(t *testing.T) {
			drop := func() {
				if _, err := a.TryLock(t.Context(), name, c.opts...); err != nil {
					t.Fatal(err)
				}
			}
			drop()
			if c.warnings == 0 {
				time.Sleep(20 * time.Millisecond)
			}
			collected := time.Now()
			eventually(t, func() bool {
				runtime.GC()
				return a.client.Exists(context.Background(), a.backend.RecordKey(name)).Val() == 0
			})
			if took := time.Since(collected); took > ttl+slack {
				t.Errorf("the name was free after %v", took)
			}
			eventually(t, func() bool { return warnings.count(name) >= c.warnings })
			if n := warnings.count(name); n != c.warnings {
				t.Errorf("%d warnings, want %d", n, c.warnings)
			}
			a.unlock(a.lock(name))
		})
	}
}

func TestC77_CancelledWaitersLeaveNothing(t *testing.T) {
	const waiters, names = 10_000, 100
	ctx := t.Context()
	server := redistest.Start(t)
	admin := server.Client()
	a, b := near(t, server, "c77:"), near(t, server, "c77:")
	b.warm()
	var held []*lease.Handle
	for n := range names {
		held = append(held, a.lock(fmt.Sprint("n", n), mutex.WithTTL(time.Hour)))
	}
	eventually(t, b.backend.Quiet)
	subscriptions := func() int64 {
		return admin.PubSubNumSub(ctx, b.backend.Channel()).Val()[b.backend.Channel()]
	}
	connections := func() int { return int(b.client.PoolStats().TotalConns) }

	var wg sync.WaitGroup
	begun := time.Now()
	for i := range waiters {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, rand.N(3*time.Second))
			defer cancel()
			h, err := b.Lock(ctx, fmt.Sprint("n", i%names))
			if err == nil {
				t.Error("granted, although somebody holds the name")
				_ = h.Close()
				return
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	}
	var mostSubscriptions int64
	mostConnections, mostParked := 0, 0
	all := make(chan struct{})
	go func() { wg.Wait(); close(all) }()
	for !isClosed(all) {
		mostSubscriptions = max(mostSubscriptions, subscriptions())
		mostConnections = max(mostConnections, connections())
		mostParked = max(mostParked, b.backend.Parked("n0"))
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("%d waiters were gone after %v; at most %d subscriptions, %d connections, %d parked on one name", waiters, time.Since(begun),
		mostSubscriptions, mostConnections, mostParked)
	if mostSubscriptions > 1 || mostConnections > b.client.Options().PoolSize || mostParked == 0 {
		t.Errorf("want at most one subscription and %d connections", b.client.Options().PoolSize)
	}
	eventually(t, b.backend.Quiet)
	eventually(t, func() bool { return subscriptions() == 0 })
	if n := inUse(b.client); n != 0 {
		t.Errorf("%d connections in use", n)
	}
	var places int64
	for n := range names {
		places += admin.ZCard(ctx, b.backend.Keys(fmt.Sprint("n", n))[2]).Val()
	}
	if places != 0 {
		t.Fatalf("%d places in queues are left", places)
	}

	var real []<-chan lockResult
	for n := range names {
		real = append(real, b.queued(ctx, fmt.Sprint("n", n)))
	}
	for n, w := range real {
		a.unlock(held[n])
		b.unlock(granted(t, w, P).h)
	}
}

// A waiter's request is late: it reaches the server after the request that takes its place back. The place must not stay, since
// whoever comes next would wait for a lease that is handed to nobody.
func TestC77_LateRequestOfACancelledWaiter(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := redistest.Start(t)
	direct := server.Client()
	a, b := far(t, server, "c77:"), near(t, server, "c77:")
	b.warm()
	a.warm()
	h := b.lock("n")
	alive := a.queued(ctx, "n") // keeps the places of its process

	leaving, cancel := context.WithCancel(ctx)
	a.sent.Reset()
	a.proxy.Delay(700*time.Millisecond, 0)
	left := a.locking(leaving, "n")
	eventually(t, func() bool { return a.sent.Total() > 0 })
	time.Sleep(100 * time.Millisecond) // it is on its way
	a.proxy.Delay(0, 0)
	cancel()
	wantErr(t, await(t, "the cancelled call", left, 0).err, context.Canceled)
	eventually(t, func() bool { return a.sent.Count("evalsha") >= 2 })
	time.Sleep(time.Second) // everything has arrived
	if places := direct.ZRange(ctx, a.backend.Keys("n")[2], 0, -1).Val(); len(places) != 1 {
		t.Errorf("in the queue: %q, want only the one who waits", places)
	}
	b.unlock(h)
	a.unlock(granted(t, alive, P).h)
	last := b.locking(ctx, "n")
	begun := time.Now()
	if took := granted(t, last, P).at.Sub(begun); took > lease.ClaimTTL(mutex.DefaultTTL)-100*time.Millisecond {
		t.Errorf("the next waiter had to wait for %v, as if somebody held the name", took)
	}
}

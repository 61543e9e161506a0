package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/backends/memory"
	"github.com/leasehold-go/leasehold/internal/clockctx"
	"github.com/leasehold-go/leasehold/internal/footprint"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/lease/leasetest"
	"github.com/leasehold-go/leasehold/mutex"
)

func TestC73_NothingOutlivesALock(t *testing.T) {
	down := errors.New("down")
	for name, path := range map[string]func(w *world){
		"Release": func(w *world) { w.release(w.lock("x")) },
		"LossThenRelease": func(w *world) {
			h := w.lock("x")
			w.deleteRecord("x")
			_ = h.Renew(w.ctx)
			wantMatch(w, h.Close(), is(lease.ErrLost))
		},
		"LossOnly": func(w *world) {
			h := w.lock("x")
			w.deleteRecord("x")
			wantMatch(w, h.Renew(w.ctx), is(lease.ErrLost))
		},
		"LossByTime": func(w *world) {
			w.faults.Plan(failing(leasetest.OpRenew, leasetest.Fault{Action: leasetest.Hang}))
			h := w.lock("x")
			w.advance(T)
			w.faults.Plan(nil)
			w.wantLost(h, lease.Expired)
		},
		"FailedTry": func(w *world) {
			h := w.lock("x")
			_, err := w.locks.TryLock(w.ctx, "x")
			wantMatch(w, err, is(lease.ErrHeld))
			w.release(h)
		},
		"CancelledWait": func(w *world) {
			h := w.lock("x")
			ctx, cancel := context.WithCancel(w.ctx)
			got := w.waiting(w.locks, ctx, "x", mutex.WithWait(time.Hour))
			cancel()
			wantMatch(w, w.result(got).err, is(context.Canceled))
			w.release(h)
		},
		"TimedOutWait": func(w *world) {
			h := w.lock("x")
			got := w.waiting(w.locks, w.ctx, "x", mutex.WithWait(time.Second), mutex.WithRand(func() float64 { return 1 }))
			w.advance(time.Second)
			wantMatch(w, w.result(got).err, is(context.DeadlineExceeded))
			w.release(h)
		},
		"BackendError": func(w *world) {
			w.faults.Next(leasetest.OpAcquire, fail(down))
			_, err := w.locks.TryLock(w.ctx, "x")
			wantMatch(w, err, is(down))
		},
		"InvalidCall": func(w *world) {
			_, err := w.locks.Lock(w.ctx, "", mutex.WithTTL(1))
			wantMatch(w, err, is(lease.ErrInvalid))
		},
		"ConstructorError": func(w *world) {
			_, err := mutex.New(w.store, mutex.WithTTL(1))
			wantMatch(w, err, is(lease.ErrInvalid))
		},
		"Close": func(w *world) {
			l := w.locker(w.net)
			w.lockOn(l, "x")
			got := w.waiting(l, w.ctx, "x")
			if err := l.Close(w.ctx); err != nil {
				w.Error(err)
			}
			wantMatch(w, w.result(got).err, is(lease.ErrClosed))
		},
	} {
		for store, run := range map[string]func(*testing.T, func(*world), ...mutex.Option){"Queue": inBubble, "Poll": inPollingBubble} {
			t.Run(name+store, func(t *testing.T) {
				for range rounds(1000) / 100 {
					run(t, func(w *world) {
						for range 100 {
							path(w)
						}
						goroutines := w.goroutines()
						if goroutines != 0 || w.timers() != 0 || supervised(w.locks) != 0 || w.faults.Running() != 0 {
							w.Errorf("left: %d goroutines, %d timers, %d leases in the books, %d calls",
								goroutines, w.timers(), supervised(w.locks), w.faults.Running())
						}
					})
				}
			})
		}
	}
}

func TestC74_NamesLeaveNothingBehind(t *testing.T) {
	names := 1_000_000
	switch {
	case testing.Short():
		t.Skip("takes seconds")
	case footprint.UnderRace:
		names = 20_000
	}
	b := memory.New()
	l, err := mutex.New(b)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	use := func(name string) lease.Token {
		h, err := l.TryLock(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Release(ctx); err != nil {
			t.Fatal(err)
		}
		return h.Token()
	}
	first := use("again")
	for i := range 5000 { // what the backend remembers of free names is bounded, and full now
		use(fmt.Sprint("warm-up", i))
	}
	before := footprint.Now()
	for i := range names {
		use(fmt.Sprint("name", i))
	}
	after := footprint.Now()
	if grown := after.Heap - before.Heap; grown > 10<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	w := &world{T: t, store: b}
	if w.records() != 0 || supervised(l) != 0 {
		t.Errorf("%d records and %d leases in the books", w.records(), supervised(l))
	}
	if again := use("again"); again <= first {
		t.Errorf("token %d after %d", again, first)
	}
	if err := l.Close(ctx); err != nil {
		t.Error(err)
	}
}

func TestC74_ManyUsersOfFewNames(t *testing.T) {
	inBubble(t, func(w *world) {
		users := rounds(10_000)
		l := w.locker(w.store)
		var all sync.WaitGroup
		var inside [10]atomic.Int32
		var last [10]lease.Token
		for i := range users {
			all.Go(func() {
				n := i % 10
				h, err := l.Lock(w.ctx, fmt.Sprint("name", n))
				if err != nil {
					t.Error(err)
					return
				}
				if inside[n].Add(1) != 1 {
					t.Error("two holders at once")
				}
				if h.Token() <= last[n] {
					t.Errorf("token %d after %d", h.Token(), last[n])
				}
				last[n] = h.Token()
				inside[n].Add(-1)
				if err := h.Release(w.ctx); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if w.records() != 0 || supervised(l) != 0 || w.timers() != 0 {
			w.Errorf("left: %d records, %d leases in the books, %d timers", w.records(), supervised(l), w.timers())
		}
	})
}

// warnings collects what is logged while a test runs.
type warnings struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *warnings) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *warnings) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(strings.Lines(l.text.String()))
}

func collectWarnings(t *testing.T) *warnings {
	old := slog.Default()
	log := &warnings{}
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(func() { slog.SetDefault(old) })
	return log
}

// collect runs the collector until *gone is set. The cleanup that sets it runs outside the bubble, in real time.
func collect(t testing.TB, gone *atomic.Bool) {
	t.Helper()
	for range 10_000 {
		runtime.GC()
		if gone.Load() {
			runtime.GC()
			return
		}
		runtime.Gosched()
	}
	t.Fatal("the handle was not collected")
}

// drop takes name, sets *gone when its handle is collected, and keeps what keep returns.
func drop(w *world, name string, gone *atomic.Bool, keep func(*lease.Handle) any, opts ...mutex.Option) any {
	w.Helper()
	h, err := w.locks.TryLock(w.ctx, name, opts...)
	if err != nil {
		w.Fatal(err)
	}
	runtime.AddCleanup(h, func(gone *atomic.Bool) { gone.Store(true) }, gone)
	return keep(h)
}

func TestC76_DroppedHandle(t *testing.T) {
	nothing := func(*lease.Handle) any { return nil }
	for _, c := range []struct {
		name string
		keep func(*lease.Handle) any
		opts []mutex.Option
	}{
		{"Default", nothing, nil},
		{"LongestHold", nothing, []mutex.Option{mutex.WithMaxHold(time.Hour)}},
		{"WithoutRenewal", nothing, []mutex.Option{mutex.WithoutRenewal()}},
		{"LostKept", func(h *lease.Handle) any { return h.Lost() }, nil},
		{"ContextUsed", func(h *lease.Handle) any {
			ctx, cancel := context.WithCancel(h.Context())
			cancel()
			<-ctx.Done()
			return nil
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := collectWarnings(t)
			inBubble(t, func(w *world) {
				lost := make(chan lease.Event, 1)
				var gone atomic.Bool
				kept := drop(w, "orders:42", &gone, c.keep, append(c.opts, mutex.WithObserver(lease.Observer{Lost: func(e lease.Event) { lost <- e }}))...)
				if c.name != "WithoutRenewal" {
					w.advance(10 * T) // it is renewed until somebody collects it
				}
				if _, ok := w.holder("orders:42"); !ok || len(lost) != 0 {
					w.Fatal("not held before it was collected")
				}
				collect(w, &gone)
				renewals := len(w.sent(leasetest.OpRenew, "orders:42"))
				for range 3 { // the cleanup of the library may be a little later than the test's
					w.advance(R)
				}
				w.advance(T)
				if n := len(w.sent(leasetest.OpRenew, "orders:42")) - renewals; n > 1 {
					w.Errorf("%d renewals after the collection", n)
				}
				w.wantFree("orders:42")
				if len(lost) != 1 || (<-lost).Reason != lease.Abandoned {
					w.Error("the observer was not told of one loss for the reason Abandoned")
				}
				if lines := log.lines(); len(lines) != 1 || !strings.Contains(lines[0], "orders:42") || !strings.Contains(lines[0], "level=WARN") {
					w.Errorf("logged %q, want one warning that names the lock", lines)
				}
				if ch, ok := kept.(<-chan struct{}); ok && !isClosed(ch) {
					w.Error("Lost is open")
				}
			})
		})
	}
}

func TestC76_ContextKeepsTheHandle(t *testing.T) {
	type key struct{}
	for name, keep := range map[string]func(*lease.Handle) any{
		"Context": func(h *lease.Handle) any { return h.Context() },
		"Derived": func(h *lease.Handle) any {
			ctx, cancel := context.WithCancel(h.Context())
			_ = cancel
			return ctx
		},
		"Value": func(h *lease.Handle) any { return context.WithValue(h.Context(), key{}, "value") },
	} {
		t.Run(name, func(t *testing.T) {
			log := collectWarnings(t)
			inBubble(t, func(w *world) {
				var gone atomic.Bool
				ctx := drop(w, "x", &gone, keep).(context.Context)
				for range 20 {
					runtime.GC()
					w.advance(R)
				}
				if gone.Load() || ctx.Err() != nil {
					w.Fatalf("collected %v, context %v", gone.Load(), ctx.Err())
				}
				w.wantHeld(lease.FromContext(ctx))
				w.release(lease.FromContext(ctx))
				if lines := log.lines(); len(lines) != 0 {
					w.Errorf("logged %q", lines)
				}
			})
		})
	}
}

// On the real clock, as users have it.
func TestC76_DroppedHandleInRealTime(t *testing.T) {
	log := collectWarnings(t)
	l, err := mutex.New(memory.New(), mutex.WithTTL(200*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	func() {
		if _, err := l.TryLock(ctx, "orders:42"); err != nil {
			t.Fatal(err)
		}
	}()
	stop := make(chan struct{})
	go func() {
		for !isClosed(stop) {
			runtime.GC()
		}
	}()
	h, err := l.Lock(ctx, "orders:42")
	close(stop)
	if err != nil {
		t.Fatalf("the name of a dropped handle does not become free: %v", err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if lines := log.lines(); len(lines) != 1 || !strings.Contains(lines[0], "orders:42") {
		t.Errorf("logged %q, want one warning that names the lock", lines)
	}
	if err := l.Close(ctx); err != nil {
		t.Error(err)
	}
}

func TestC77_CancelledWaitersLeaveNothing(t *testing.T) {
	for store, run := range map[string]func(*testing.T, func(*world), ...mutex.Option){"Queue": inBubble, "Poll": inPollingBubble} {
		t.Run(store, func(t *testing.T) {
			waiters := 10_000
			if footprint.UnderRace || testing.Short() || store == "Poll" {
				waiters = 300
			}
			const names = 100
			run(t, func(w *world) {
				rnd := rand.New(rand.NewPCG(77, 0))
				holders := make([]*lease.Handle, names)
				for i := range holders {
					holders[i] = w.lock(fmt.Sprint("name", i))
				}
				timers, goroutines := w.timers(), w.goroutines()
				var all sync.WaitGroup
				for i := range waiters {
					ctx, cancel := clockctx.WithTimeout(w.ctx, w.clk, time.Duration(1+rnd.Int64N(int64(2*time.Second))))
					all.Go(func() {
						defer cancel()
						_, err := w.locks.Lock(ctx, fmt.Sprint("name", i%names), mutex.WithRand(func() float64 { return 1 }))
						wantMatch(w, err, is(lease.ErrHeld, context.DeadlineExceeded))
					})
				}
				w.advance(2 * time.Second)
				all.Wait()
				synctest.Wait()
				if n, g := w.timers()-timers, w.goroutines()-goroutines; n != 0 || g != 0 {
					w.Errorf("left: %d timers, %d goroutines", n, g)
				}
				for i, h := range holders {
					got := w.waiting(w.locks, w.ctx, fmt.Sprint("name", i))
					w.release(h)
					if store == "Poll" {
						w.advance(P)
					}
					w.release(w.granted(got))
				}
			})
		})
	}
}

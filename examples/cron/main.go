// Cron runs a job at each tick in one of several processes. Start it as often as you like:
//
//	go run ./examples/cron -redis redis://127.0.0.1:6379 -every 10s
//
// At each tick all processes make one attempt to take the same lease. Who gets it runs the job; the others are told
// lease.ErrHeld and wait for the next tick. A process that dies takes nothing with it but the run that it was at.
//
// Clocks of machines differ, and processes are late. So the job begins at most a grace after its tick, and the lease is held
// for at least twice the grace. A process that is granted the lease after that finds itself too late for the tick, unless its
// clock is more than a grace behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/backends/redis"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/mutex"
)

func main() {
	url := flag.String("redis", "redis://127.0.0.1:6379", "keep the lease in the Redis at this `URL`")
	name := flag.String("name", "cron/report", "name of the lease")
	every := flag.Duration("every", 10*time.Second, "time from one tick to the next")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second interrupt ends the program at once
	if err := start(ctx, os.Stdout, *url, *name, *every); err != nil {
		fmt.Fprintln(os.Stderr, "cron:", err)
		os.Exit(1)
	}
}

// start runs a scheduler on Redis until ctx ends.
func start(ctx context.Context, out io.Writer, url, name string, every time.Duration) error {
	opts, err := goredis.ParseURL(url)
	if err != nil {
		return err
	}
	opts.ContextTimeoutEnabled = true // deadlines hold while a reply is awaited
	client := goredis.NewClient(opts)
	defer client.Close()
	backend, err := redis.New(client)
	if err != nil {
		return err
	}
	defer backend.Close()
	s, err := newScheduler(backend, name, every)
	if err != nil {
		return err
	}
	defer s.locks.Close(ctx)
	s.job = func(ctx context.Context, h *lease.Handle, tick time.Time) {
		// A real job does its work here, stops when ctx ends, and sends h.Token() with every write.
		fmt.Fprintln(out, "ran", tick.Format(time.RFC3339Nano), "token", h.Token())
	}
	s.skip = func(tick time.Time, why error) { fmt.Fprintln(out, "skipped", tick.Format(time.RFC3339Nano), why) }
	s.run(ctx)
	return nil
}

// scheduler runs a job at each tick, if no other scheduler does.
type scheduler struct {
	locks *mutex.Locker
	name  string
	every time.Duration
	grace time.Duration // the job begins within so much of its tick, and clocks may differ by so much
	job   func(ctx context.Context, h *lease.Handle, tick time.Time)
	skip  func(tick time.Time, why error)
	now   func() time.Time
}

func newScheduler(backend lease.Backend, name string, every time.Duration) (*scheduler, error) {
	grace := every / 4
	// With a TTL of two graces the lease outlives the danger even if its holder dies right after it began the job.
	locks, err := mutex.New(backend, mutex.WithTTL(2*grace))
	if err != nil {
		return nil, err
	}
	return &scheduler{locks: locks, name: name, every: every, grace: grace, now: time.Now}, nil
}

// run waits for ticks until ctx ends. Ticks are multiples of every, so all processes have the same.
func (s *scheduler) run(ctx context.Context) {
	for {
		tick := s.now().Truncate(s.every).Add(s.every)
		if !s.sleepUntil(ctx, tick, nil) {
			return
		}
		if err := s.tick(ctx, tick); err != nil {
			s.skip(tick, err)
		}
	}
}

var errLate = errors.New("too late for this tick")

// tick runs the job, or says why not. lease.ErrHeld means that another process runs it, or that the run before takes longer
// than a period; anything else is trouble.
func (s *scheduler) tick(ctx context.Context, tick time.Time) error {
	h, err := s.locks.TryLock(ctx, s.name)
	if errors.Is(err, lease.ErrHeld) {
		return lease.ErrHeld
	}
	if err != nil {
		return err
	}
	defer h.Close()
	// Order matters: who looks at the clock after the grant, and finds it within the grace, knows that no other process has held
	// the lease for this tick and given it back.
	if s.now().After(tick.Add(s.grace)) {
		return errLate
	}
	s.job(h.Context(), h, tick)
	// Shutdown too waits until nobody takes this tick for its own any more.
	s.sleepUntil(context.WithoutCancel(ctx), tick.Add(2*s.grace), h.Lost())
	return nil
}

// sleepUntil reports whether it slept until then: not if ctx ended or done was closed before.
func (s *scheduler) sleepUntil(ctx context.Context, then time.Time, done <-chan struct{}) bool {
	select {
	case <-time.After(then.Sub(s.now())):
		return true
	case <-done:
	case <-ctx.Done():
	}
	return false
}

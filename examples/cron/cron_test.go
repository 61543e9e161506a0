package main

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold/backends/memory"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/lease"
)

// asProgram makes the test binary be the program itself, so that tests can start processes of it.
const asProgram = "LEASEHOLD_EXAMPLE_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(redistest.Main(m))
}

// TestScheduler_SkewedClocks has five schedulers with clocks up to a grace apart, and checks that each tick runs once.
func TestScheduler_SkewedClocks(t *testing.T) {
	const every, ticks = 20 * time.Second, 50
	synctest.Test(t, func(t *testing.T) {
		backend := memory.New()
		ctx, cancel := context.WithTimeout(context.Background(), ticks*every+every/2)
		defer cancel()
		var mu sync.Mutex
		ran := map[time.Time]int{}
		var all sync.WaitGroup
		for _, skew := range []time.Duration{0, -2 * time.Second, 2 * time.Second, -time.Second, 2999 * time.Millisecond} {
			s, err := newScheduler(backend, "job", every)
			if err != nil {
				t.Fatal(err)
			}
			s.now = func() time.Time { return time.Now().Add(skew) }
			s.job = func(_ context.Context, _ *lease.Handle, tick time.Time) {
				mu.Lock()
				defer mu.Unlock()
				ran[tick]++
			}
			s.skip = func(_ time.Time, why error) {
				if !errors.Is(why, lease.ErrHeld) {
					t.Errorf("skipped: %v", why)
				}
			}
			all.Go(func() {
				s.run(ctx)
				if err := s.locks.Close(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for tick, n := range ran {
			if n != 1 {
				t.Errorf("tick %v ran %d times", tick, n)
			}
		}
		if len(ran) < ticks {
			t.Errorf("%d ticks ran, want %d", len(ran), ticks)
		}
	})
}

// TestScheduler_LateProcess: a process that comes when the others are done does not run the tick again.
func TestScheduler_LateProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := newScheduler(memory.New(), "job", 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer s.locks.Close(context.Background())
		s.job = func(context.Context, *lease.Handle, time.Time) { t.Error("it ran") }
		if err := s.tick(context.Background(), time.Now().Add(-6*time.Second)); !errors.Is(err, errLate) {
			t.Errorf("error %v, want errLate", err)
		}
	})
}

// TestMain_Processes starts three processes and reads from what they print that no tick ran twice.
func TestMain_Processes(t *testing.T) {
	url := "redis://" + redistest.Shared(t).Addr()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	lines := make(chan string)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() { process(ctx, t, url, lines) })
	}
	ran := map[string]int{}
	for skipped := 0; len(ran) < 2 || skipped < 2; {
		select {
		case line := <-lines:
			if tick, ok := strings.CutPrefix(line, "ran "); ok {
				tick, _, _ = strings.Cut(tick, " ")
				ran[tick]++
			} else if strings.Contains(line, lease.ErrHeld.Error()) {
				skipped++
			}
		case <-ctx.Done():
			t.Fatalf("in a minute only %d ticks ran and %d were skipped", len(ran), skipped)
		}
	}
	cancel()
	go func() {
		all.Wait()
		close(lines)
	}()
	for range lines { // what else they print while they end
	}
	for tick, n := range ran {
		if n != 1 {
			t.Errorf("tick %s ran in %d processes", tick, n)
		}
	}
}

// process runs the program until ctx ends, then interrupts it.
func process(ctx context.Context, t *testing.T, url string, lines chan<- string) {
	cmd := exec.CommandContext(ctx, os.Args[0], "-redis", url, "-name", t.Name(), "-every", "1s")
	cmd.Env = append(os.Environ(), asProgram+"=1")
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Error(err)
		return
	}
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return
	}
	for s := bufio.NewScanner(out); s.Scan(); {
		lines <- s.Text()
	}
	if err := cmd.Wait(); err != nil && ctx.Err() == nil {
		t.Errorf("process: %v", err)
	}
}

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
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
	"github.com/leasehold-go/leasehold/mutex"
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

func bubble(t *testing.T, f func(t *testing.T, ctx context.Context, locks *mutex.Locker), opts ...mutex.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(epoch)) // a bubble begins in 2000
		locks, err := mutex.New(memory.New(), opts...)
		if err != nil {
			t.Fatal(err)
		}
		f(t, context.Background(), locks)
		if err := locks.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestTake_EachIDOnce(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, locks *mutex.Locker) {
		seen := map[int64]bool{}
		var last *generator
		for range 4 {
			g, err := take(ctx, locks, 4, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			for range 10_000 { // more than fit into a millisecond
				id, err := g.next()
				if err != nil {
					t.Fatal(err)
				}
				if seen[id] {
					t.Fatalf("id %d was issued twice", id)
				}
				seen[id] = true
			}
			last = g
		}
		if _, err := take(ctx, locks, 4, time.Second); !errors.Is(err, errAllTaken) {
			t.Fatalf("a fifth of four: %v", err)
		}
		if err := last.h.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := last.next(); !errors.Is(err, lease.ErrReleased) {
			t.Errorf("next after release: %v", err)
		}
		g, err := take(ctx, locks, 4, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if g.worker != last.worker {
			t.Errorf("worker %d, want the one that became free, %d", g.worker, last.worker)
		}
	})
}

func TestGenerator_IssuesNothingAfterTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, locks *mutex.Locker) {
		g, err := take(ctx, locks, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(g.h.TrustedUntil()) - time.Nanosecond)
		if _, err := g.next(); err != nil {
			t.Errorf("while the lease is valid: %v", err)
		}
		time.Sleep(time.Nanosecond)
		if _, err := g.next(); !errors.Is(err, lease.ErrLost) {
			t.Errorf("at the end of trust: %v", err)
		}
	}, mutex.WithoutRenewal())
}

func TestRun_RefusesProcessLocal(t *testing.T) {
	if err := run(context.Background(), io.Discard, config{ids: 1}); !errors.Is(err, lease.ErrInvalid) {
		t.Errorf("error %v, want ErrInvalid", err)
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(epoch))
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := run(ctx, io.Discard, config{ids: 1, local: true, every: time.Second}); err != nil {
			t.Error(err)
		}
	})
}

// TestMain_Processes starts three processes for three worker ids, and a fourth that finds none.
func TestMain_Processes(t *testing.T) {
	url := "redis://" + redistest.Shared(t).Addr()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	program := func() *exec.Cmd {
		cmd := exec.CommandContext(ctx, os.Args[0], "-redis", url, "-n", "3", "-skew", "10ms", "-every", "10ms")
		cmd.Env = append(os.Environ(), asProgram+"=1")
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.WaitDelay = 20 * time.Second
		return cmd
	}
	lines := make(chan string)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			cmd := program()
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
			_ = cmd.Wait() // interrupted
		})
	}
	workers, ids := map[string]int{}, map[string]int{}
	for len(workers) < 3 || len(ids) < 30 {
		select {
		case line := <-lines:
			switch what, value, _ := strings.Cut(line, " "); what {
			case "worker":
				workers[value]++
			case "id":
				ids[value]++
			}
		case <-ctx.Done():
			t.Fatalf("in a minute only %d workers and %d ids", len(workers), len(ids))
		}
	}
	fourth := make(chan string)
	go func() {
		out, err := program().CombinedOutput()
		if err == nil {
			t.Error("a fourth process of three ended without an error")
		}
		fourth <- string(out)
	}()
	for done := false; !done; {
		select {
		case <-lines:
		case out := <-fourth:
			if !strings.Contains(out, errAllTaken.Error()) {
				t.Errorf("the fourth process said %q", out)
			}
			done = true
		}
	}
	cancel()
	go func() {
		all.Wait()
		close(lines)
	}()
	for range lines {
	}
	for id, n := range ids {
		if n != 1 {
			t.Errorf("id %s was issued %d times", id, n)
		}
	}
}

package redistest_test

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestStart_AnswersAndPassesArguments(t *testing.T) {
	s := redistest.Start(t, redistest.WithArgs("--maxmemory", "5mb"))
	c := s.Client()
	got, err := c.ConfigGet(testContext(t), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"maxmemory": "5242880", "save": "", "appendonly": "no"} {
		if got[name] != want {
			t.Errorf("config %s = %q, want %q", name, got[name], want)
		}
	}
}

func TestStart_ServerGoneAfterTest(t *testing.T) {
	var pid int
	var addr string
	t.Run("starts one", func(t *testing.T) {
		s := redistest.Start(t)
		pid, addr = s.PID(), s.Addr()
		s.Pause() // a suspended server is stopped as well
	})
	if proc, err := os.FindProcess(pid); err == nil {
		if err := proc.Signal(syscall.Signal(0)); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("process %d after the test: %v, want %v", pid, err, os.ErrProcessDone)
		}
	}
	if _, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial after the test: %v, want %v", err, syscall.ECONNREFUSED)
	}
}

func TestServer_PauseAndResume(t *testing.T) {
	s := redistest.Start(t)
	c := s.Client(plain)
	mustSet(t, c, "before")

	s.Pause()
	if err := c.Get(testContext(t), "before").Err(); !isTimeout(err) {
		t.Errorf("GET of a paused server: %v, want a timeout", err)
	}
	s.Resume()
	mustSet(t, c, "after")
}

func TestServer_RestartForgets(t *testing.T) {
	s := redistest.Start(t)
	mustSet(t, s.Client(plain), "k")
	addr, pid := s.Addr(), s.PID()

	s.Restart()
	if exists(t, s, "k") {
		t.Error("key outlived a restart without persistence")
	}
	if s.Addr() != addr || s.PID() == pid {
		t.Errorf("after restart: %s, pid %d; before: %s, pid %d", s.Addr(), s.PID(), addr, pid)
	}
}

func TestServer_KillAndRestartWithPersistence(t *testing.T) {
	s := redistest.Start(t, redistest.WithPersistence())
	c := s.Client(plain)
	mustSet(t, c, "k")

	s.Pause()
	s.Kill()
	if s.PID() != 0 {
		t.Errorf("pid %d after kill", s.PID())
	}
	if err := c.Get(testContext(t), "k").Err(); err == nil {
		t.Error("killed server answers")
	}
	s.Restart()
	if !exists(t, s, "k") {
		t.Error("acknowledged write lost in spite of persistence")
	}
	s.Stop()
	s.Stop()
}

func TestServer_CommandStats(t *testing.T) {
	s := redistest.Start(t)
	c := s.Client()
	ctx := testContext(t)
	mustSet(t, c, "a")
	s.ResetStats(ctx)
	mustSet(t, c, "b")
	mustSet(t, c, "c")
	if err := c.Eval(ctx, "return redis.call('GET', KEYS[1])", []string{"b"}).Err(); err != nil {
		t.Fatal(err)
	}

	got := s.CommandStats(ctx)
	want := map[string]int64{"set": 2, "eval": 1, "get": 1}
	if len(got) != len(want) {
		t.Errorf("stats %v, want %v", got, want)
	}
	for name, n := range want {
		if got[name] != n {
			t.Errorf("stats[%s] = %d, want %d", name, got[name], n)
		}
	}
}

func TestServer_FlushAll(t *testing.T) {
	s := redistest.Start(t)
	mustSet(t, s.Client(), "k")
	s.FlushAll(testContext(t))
	if exists(t, s, "k") {
		t.Error("key outlived FlushAll")
	}
}

func TestServer_StartsBesideAnother(t *testing.T) {
	a, b := redistest.Start(t), redistest.Start(t)
	if a.Addr() == b.Addr() || a.PID() == b.PID() {
		t.Errorf("two servers at %s (pid %d) and %s (pid %d)", a.Addr(), a.PID(), b.Addr(), b.PID())
	}
}

package redistest

import (
	"os"
	"sync"
	"testing"
)

// M is what [testing.M] offers here.
type M interface{ Run() int }

// shared is the server all tests of a binary use. There is one per process because that is what sharing means; it lives
// between the start and the end of Run.
var shared struct {
	// Held while the server starts: those who want it meanwhile have to wait for it anyway.
	mu      sync.Mutex
	running bool // within Run
	proc    *process
	dir     string
}

// Shared returns the server that the tests of this binary share, and starts it at the first call, which blocks as [Start]
// does. Tests stay apart by keys that begin with [Server.Prefix]; whatever would take the server away from the others
// (Pause, Kill, Stop, Restart) ends the test. It needs a TestMain that calls [Main] or [Run], and may be called concurrently.
func Shared(t testing.TB) *Server {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.running {
		t.Fatal("redistest: Shared needs a TestMain that calls redistest.Main or redistest.Run")
	}
	if shared.proc == nil {
		startSharedLocked(t)
	}
	return &Server{t: t, proc: shared.proc, shared: true}
}

func startSharedLocked(t testing.TB) {
	t.Helper()
	binary := findBinary(t)
	dir, err := os.MkdirTemp("", "redistest") // not a test's: it outlives the one that asked first
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	proc, err := startProcess(binary, dir, nil)
	if err != nil {
		_ = os.RemoveAll(dir)
		t.Fatalf("redistest: %v", err)
	}
	shared.proc, shared.dir = proc, dir
}

// Run runs the tests of m, then stops the shared server, if one was started, and returns the exit code.
func Run(m M) int {
	shared.mu.Lock()
	shared.running = true
	shared.mu.Unlock()
	defer stopShared()
	return m.Run()
}

// Main returns an M whose Run is [Run] of m, for those who run an M themselves, as goleak.VerifyTestMain does.
func Main(m M) M { return mainFunc(func() int { return Run(m) }) }

type mainFunc func() int

func (f mainFunc) Run() int { return f() }

func stopShared() {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.running = false
	if shared.proc == nil {
		return
	}
	shared.proc.stop()
	_ = os.RemoveAll(shared.dir) // a leftover log file harms nobody
	shared.proc, shared.dir = nil, ""
}

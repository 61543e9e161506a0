package redistest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
)

// portAttempts bounds how often Start tries another port after somebody took the one it had chosen.
const portAttempts = 10

// Server is a running redis-server, as one test sees it.
type Server struct {
	t      testing.TB
	proc   *process
	shared bool
}

// Start runs a redis-server on a free loopback port and returns it. It blocks until the server answers, for a bounded time,
// and ends the test when it does not. The server keeps nothing on disk unless an option says so, logs into a directory of
// the test, and is stopped when the test ends.
//
// Without a redis-server binary the test is skipped, or fails where [Required] says so.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	proc, err := startProcess(findBinary(t), t.TempDir(), opts)
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	t.Cleanup(proc.stop)
	return &Server{t: t, proc: proc}
}

// Addr returns the host and port the server listens on. It is the same after Restart.
func (s *Server) Addr() string { return s.proc.addr }

// PID returns the process id of the running server, 0 while there is none.
func (s *Server) PID() int { return s.proc.pid() }

// Pause suspends the server and returns once it has stopped running: connections stay open and can still be made, and
// nobody is answered. Its clock goes on, so keys expire meanwhile.
func (s *Server) Pause() {
	s.t.Helper()
	s.mustOwn("Pause")
	s.check("pause", s.proc.suspend())
}

// Resume lets a paused server run on. It does nothing to a server that runs. Stopping, killing and restarting resume first.
func (s *Server) Resume() {
	s.t.Helper()
	s.mustOwn("Resume")
	s.check("resume", s.proc.resume())
}

// Kill ends the server at once, as a crash would, and returns when the process is gone.
func (s *Server) Kill() {
	s.t.Helper()
	s.mustOwn("Kill")
	s.proc.kill()
}

// Stop asks the server to shut down, kills it when it takes too long, and returns when the process is gone. It does nothing
// when no server runs.
func (s *Server) Stop() {
	s.t.Helper()
	s.mustOwn("Stop")
	s.proc.stop()
}

// Restart stops the server if it runs, starts it again on the same address, and blocks until it answers. The data is gone
// unless the server was started with [WithPersistence].
func (s *Server) Restart() {
	s.t.Helper()
	s.mustOwn("Restart")
	s.proc.stop()
	s.check("restart", s.proc.start())
}

var prefixes atomic.Int64

// Prefix returns a string to begin keys with, different at each call: tests on a shared server stay apart by it.
func (s *Server) Prefix() string {
	return fmt.Sprintf("%s#%d:", s.t.Name(), prefixes.Add(1))
}

// mustOwn ends the test that would take the server away from others.
func (s *Server) mustOwn(method string) {
	s.t.Helper()
	if s.shared {
		s.t.Fatalf("redistest: %s on the shared server: use Start", method)
	}
}

func (s *Server) check(verb string, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("redistest: %s: %v", verb, err)
	}
}

// startProcess starts a server in dir, on another port as long as others are quicker to take the chosen one.
func startProcess(binary, dir string, opts []Option) (*process, error) {
	for range portAttempts {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		proc := newProcess(binary, dir, port, newSettings(opts))
		err = proc.start()
		if err == nil {
			return proc, nil
		}
		if !errors.Is(err, errPortTaken) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("no free port in %d attempts: %w", portAttempts, errPortTaken)
}

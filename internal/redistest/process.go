package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	readyTimeout = 20 * time.Second       // from launch to the first answer, on a busy machine
	stopTimeout  = 3 * time.Second        // from the request to shut down to the kill
	pollInterval = 5 * time.Millisecond   // between two looks at something outside this process
	probeTimeout = 500 * time.Millisecond // for one answer while starting
)

var (
	errPortTaken = errors.New("port is taken")
	errNoServer  = errors.New("no server runs")
)

// process is a redis-server that can be started, ended and started again at one address.
type process struct {
	// Fixed after newProcess.
	binary  string
	dir     string
	addr    string
	args    []string
	logPath string

	// Guarded by mu.
	mu  sync.Mutex
	cur *run // nil while no server runs
}

func newProcess(binary, dir string, port int, s settings) *process {
	base := []string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir, "--daemonize", "no"}
	return &process{
		binary:  binary,
		dir:     dir,
		addr:    loopback(port),
		args:    slices.Concat(base, s.commandLine()),
		logPath: filepath.Join(dir, "redis.log"),
	}
}

// start launches the server and blocks until it answers. After an error nothing runs.
func (p *process) start() error {
	logFile, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer logFile.Close()

	cmd := exec.Command(p.binary, p.args...)
	cmd.Dir = p.dir
	cmd.Stdout, cmd.Stderr = logFile, logFile
	r, err := launch(cmd)
	if err != nil {
		return err
	}
	if err := p.awaitReady(r); err != nil {
		r.kill()
		return err
	}
	p.set(r)
	return nil
}

// awaitReady blocks until the server of r answers PING.
func (p *process) awaitReady(r *run) error {
	deadline := time.NewTimer(readyTimeout)
	defer deadline.Stop()
	for {
		if p.answers(r) {
			return nil
		}
		select {
		case <-r.exited:
			return p.exitError()
		case <-deadline.C:
			return fmt.Errorf("%s did not answer within %v; its log:\n%s", p.addr, readyTimeout, p.log())
		case <-time.After(pollInterval):
		}
	}
}

// answers reports whether the server at the address is ready and is the one r runs, not one that had the port before.
func (p *process) answers(r *run) bool {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	if _, err := ask(ctx, p.addr, "PING"); err != nil && !refusesStrangers(err) {
		return false
	}
	info, err := ask(ctx, p.addr, "INFO", "server")
	if refusesStrangers(err) {
		return r.alive()
	}
	return strings.Contains(info, fmt.Sprintf("process_id:%d\r\n", r.pid()))
}

func (p *process) exitError() error {
	log := p.log()
	if strings.Contains(log, "Address already in use") {
		return fmt.Errorf("%s: %w", p.addr, errPortTaken)
	}
	return fmt.Errorf("%s exited while starting; its log:\n%s", p.binary, log)
}

// suspend stops the server from running and returns once it stands still.
func (p *process) suspend() error {
	r := p.current()
	if r == nil {
		return errNoServer
	}
	return r.suspend()
}

func (p *process) resume() error {
	r := p.current()
	if r == nil {
		return errNoServer
	}
	return r.resume()
}

// stop shuts the server down and returns when it is gone.
func (p *process) stop() {
	if r := p.current(); r != nil {
		r.stop()
		p.set(nil)
	}
}

// kill ends the server at once and returns when it is gone.
func (p *process) kill() {
	if r := p.current(); r != nil {
		r.kill()
		p.set(nil)
	}
}

func (p *process) pid() int {
	if r := p.current(); r != nil {
		return r.pid()
	}
	return 0
}

func (p *process) current() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cur
}

func (p *process) set(r *run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cur = r
}

// log returns what the server wrote since it was last started.
func (p *process) log() string {
	b, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// run is one life of a server process.
type run struct {
	proc   *os.Process
	exited chan struct{} // closed when the process is gone and reaped
}

// launch starts cmd and waits for its end on a goroutine of its own, which ends with the process.
//
// That goroutine keeps its thread: the kernel kills the child when the *thread* that started it ends, so the thread has to
// live as long as the child may.
func launch(cmd *exec.Cmd) (*run, error) {
	cmd.SysProcAttr = dieWithParent()
	r := &run{exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		r.proc = cmd.Process
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // how it ended does not matter: the log says why
		close(r.exited)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return r, nil
}

func (r *run) pid() int { return r.proc.Pid }

func (r *run) alive() bool {
	select {
	case <-r.exited:
		return false
	default:
		return true
	}
}

// suspend blocks until the process stands still: the signal alone may arrive a little later.
func (r *run) suspend() error {
	if err := suspendProcess(r.proc); err != nil {
		return err
	}
	for end := time.Now().Add(stopTimeout); time.Now().Before(end); time.Sleep(pollInterval) {
		if suspended(r.pid()) {
			return nil
		}
	}
	return fmt.Errorf("process %d runs on", r.pid())
}

func (r *run) resume() error { return resumeProcess(r.proc) }

// stop asks the process to end, kills it if that takes too long, and returns when it is gone.
func (r *run) stop() {
	_ = r.resume() // a suspended process would not see the request
	if err := r.proc.Signal(syscall.SIGTERM); err == nil {
		select {
		case <-r.exited:
			return
		case <-time.After(stopTimeout):
		}
	}
	r.kill()
}

// kill ends the process, suspended or not, and returns when it is gone.
func (r *run) kill() {
	if err := r.proc.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		panic(fmt.Sprintf("redistest: kill %d: %v", r.pid(), err)) // our own child: cannot be refused
	}
	<-r.exited
}

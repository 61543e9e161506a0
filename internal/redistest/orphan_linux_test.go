package redistest_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// TestStart_NoOrphan runs a test binary that starts servers and dies, and looks for what it left behind.
func TestStart_NoOrphan(t *testing.T) {
	for _, how := range []string{"panic", "kill"} {
		t.Run(how, func(t *testing.T) {
			redistest.Shared(t) // skips without a binary
			cmd := exec.Command(os.Args[0], "-test.run=^TestOrphan$", "-test.count=1")
			cmd.Env = append(os.Environ(), orphanEnv+"="+how, "TMPDIR="+t.TempDir())
			var out bytes.Buffer
			cmd.Stdout = &out
			if err := cmd.Run(); err == nil {
				t.Fatal("the other binary ended well")
			}
			var own, shared int
			if _, err := fmt.Fscanf(&out, "%d %d\n", &own, &shared); err != nil {
				t.Fatalf("output %q: %v", out.String(), err)
			}
			for _, pid := range []int{own, shared} {
				eventually(t, fmt.Sprintf("end of server %d", pid), func() bool { return gone(pid) })
			}
		})
	}
}

func TestOrphan(t *testing.T) {
	how := os.Getenv(orphanEnv)
	if how == "" {
		t.Skip("runs in another instance of this binary")
	}
	own, shared := redistest.Start(t), redistest.Shared(t)
	time.Sleep(50 * time.Millisecond) // idle threads may end now; the servers must not
	if gone(own.PID()) || gone(shared.PID()) {
		t.Fatal("server ended before its parent")
	}
	fmt.Println(own.PID(), shared.PID())
	if how == "panic" {
		go panic("as intended") // on this goroutine the test's clean-up would run first
		select {}
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

// gone reports whether the process has ended. One that nobody has reaped yet has.
func gone(pid int) bool {
	if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || bytes.Contains(stat, []byte(") Z "))
}

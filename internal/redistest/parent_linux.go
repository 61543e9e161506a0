package redistest

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// dieWithParent makes the kernel kill the child when the thread that started it ends.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// suspended reports whether the process stands still: state T in its status line, which follows the name in parentheses.
func suspended(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	return bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" T"))
}

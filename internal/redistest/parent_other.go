//go:build !linux

package redistest

import (
	"syscall"
	"time"
)

// dieWithParent does nothing here: a killed test binary leaves its servers running.
func dieWithParent() *syscall.SysProcAttr { return nil }

// suspended cannot look here. It gives the signal time to arrive.
func suspended(int) bool {
	time.Sleep(10 * time.Millisecond)
	return true
}

package leasetest

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/leasehold-go/leasehold/lease"
)

// verdict is how a case ended.
type verdict struct {
	failed, skipped bool
	log             string
}

// judge runs one case in a bubble and returns the verdict instead of failing t.
func judge(t *testing.T, c testCase, newBackend func() lease.Backend, opts ...Option) verdict {
	t.Helper()
	s := newSettings(append([]Option{WithBubble()}, opts...))
	var r *recorder
	synctest.Test(t, func(t *testing.T) {
		r = &recorder{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer r.cleanUp()
			s.run(r, c, newBackend())
		}()
		<-done
	})
	return verdict{failed: r.failed, skipped: r.skipped, log: strings.Join(r.logs, "\n")}
}

// recorder stands in for the testing.TB of a case that may fail. What it does not override would reach the real test; cases use
// nothing of that kind.
type recorder struct {
	testing.TB

	mu              sync.Mutex
	failed, skipped bool
	logs            []string
	cleanups        []func()
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return context.Background() }
func (r *recorder) Cleanup(f func())         { r.cleanups = append(r.cleanups, f) }

func (r *recorder) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logs = append(r.logs, fmt.Sprintf(format, args...))
}

func (r *recorder) Errorf(format string, args ...any) {
	r.Logf(format, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Skip(args ...any) {
	r.Logf("%s", fmt.Sprint(args...))
	r.skipped = true
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, args ...any) { r.Skip(fmt.Sprintf(format, args...)) }

func (r *recorder) cleanUp() {
	for _, f := range r.cleanups {
		defer f()
	}
}

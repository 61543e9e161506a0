package redistest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// outcome is how a test ended.
type outcome struct {
	testing.TB
	failed, skipped bool
	message         string
}

func (o *outcome) Fatalf(format string, args ...any) {
	o.failed, o.message = true, fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (o *outcome) Skipf(format string, args ...any) {
	o.skipped, o.message = true, fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// outcomeOf runs f as if it were a test of its own.
func outcomeOf(t *testing.T, f func(testing.TB)) *outcome {
	t.Helper()
	o := &outcome{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(o)
	}()
	<-done
	return o
}

func TestStart_WithoutBinary(t *testing.T) {
	tests := []struct {
		name, ci, required string
		fails              bool
	}{
		{"skips", "", "", false},
		{"fails in CI", "true", "", true},
		{"fails where required", "", "1", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("PATH", t.TempDir())
			t.Setenv("CI", tt.ci)
			t.Setenv("LEASEHOLD_REQUIRE_REDIS", tt.required)
			got := outcomeOf(t, func(tb testing.TB) { redistest.Start(tb) })
			if got.failed != tt.fails || got.skipped == tt.fails {
				t.Errorf("failed %t, skipped %t", got.failed, got.skipped)
			}
			for _, want := range []string{"redis-server not found", "apt-get install"} {
				if !strings.Contains(got.message, want) {
					t.Errorf("message %q does not say %q", got.message, want)
				}
			}
		})
	}
}

func TestStart_BadArgumentsShowTheLog(t *testing.T) {
	got := outcomeOf(t, func(tb testing.TB) { redistest.Start(tb, redistest.WithArgs("--no-such-option", "1")) })
	if !got.failed || !strings.Contains(got.message, "no-such-option") {
		t.Errorf("outcome %+v", got)
	}
}

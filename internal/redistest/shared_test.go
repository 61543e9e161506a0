package redistest_test

import (
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestShared_OneServerForAll(t *testing.T) {
	first := redistest.Shared(t)
	for _, name := range []string{"one", "two"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Shared(t)
			if s.PID() != first.PID() {
				t.Errorf("pid %d, want %d", s.PID(), first.PID())
			}
			a, b := s.Prefix(), s.Prefix()
			if a == b || !strings.HasPrefix(a, t.Name()) {
				t.Errorf("prefixes %q and %q", a, b)
			}
			mustSet(t, s.Client(), a+"k")
		})
	}
}

func TestShared_CannotBeTakenAway(t *testing.T) {
	pid := redistest.Shared(t).PID()
	methods := map[string]func(*redistest.Server){
		"Pause":   (*redistest.Server).Pause,
		"Resume":  (*redistest.Server).Resume,
		"Kill":    (*redistest.Server).Kill,
		"Stop":    (*redistest.Server).Stop,
		"Restart": (*redistest.Server).Restart,
	}
	for name, method := range methods {
		t.Run(name, func(t *testing.T) {
			got := outcomeOf(t, func(tb testing.TB) { method(redistest.Shared(tb)) })
			if !got.failed || !strings.Contains(got.message, name+" on the shared server") {
				t.Errorf("outcome %+v", got)
			}
		})
	}
	if got := redistest.Shared(t).PID(); got != pid {
		t.Errorf("pid %d, want %d", got, pid)
	}
}

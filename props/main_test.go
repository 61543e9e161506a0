package props

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func TestMain(m *testing.M) {
	if err := checkLayout(); err != nil {
		fmt.Fprintln(os.Stderr, "props:", err)
		os.Exit(1)
	}
	// One goroutine at a time: a case that failed fails again, and shrinks. It is also faster.
	runtime.GOMAXPROCS(1)
	_ = flag.Set("rapid.steps", "50") // unless the command line says otherwise
	slog.SetDefault(slog.New(&warnings))
	os.Exit(m.Run())
}

// simulate runs prop as a rapid property, each case in a bubble. A breach is reported with its history, and also when the case
// leaves goroutines behind, of which the bubble complains with a panic of its own.
func simulate(t *testing.T, prop func(t *rapid.T, started func(*sim))) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		var s *sim
		defer func() {
			r := recover()
			if r == nil || s == nil {
				return
			}
			if s.breach == "" && strings.Contains(fmt.Sprint(r), "deadlock") {
				s.breach = "invariant NothingLeft: goroutines are left: " + fmt.Sprint(r)
			}
			if s.breach == "" {
				panic(r)
			}
			rt.Logf("history:\n%s", &s.hist)
			rt.Fatalf("%s", s.breach)
		}()
		rapid.SyncTest(rt, func(rt *rapid.T) {
			prop(rt, func(started *sim) { s = started })
		})
	})
}

// strangers describes the goroutines of this bubble beside the caller, if there are more goroutines than there were.
func strangers(before int) string {
	if runtime.NumGoroutine() <= before {
		return ""
	}
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	all := strings.Split(string(buf), "\n\n")
	bubble := bubbleOf(all[0])
	var others []string
	for _, g := range all[1:] {
		if bubbleOf(g) == bubble {
			others = append(others, g)
		}
	}
	if len(others) <= 1 { // testing's own
		return ""
	}
	return strings.Join(others, "\n\n")
}

func bubbleOf(goroutine string) string {
	head, _, _ := strings.Cut(goroutine, "\n")
	_, bubble, _ := strings.Cut(head, "synctest bubble ")
	return strings.TrimRight(bubble, "]:")
}

// warnings takes what the product logs: one line for each handle that was dropped.
var warnings warningLog

type warningLog struct {
	mu   sync.Mutex
	seen map[string]int // by name and token
}

func (l *warningLog) Enabled(context.Context, slog.Level) bool { return true }

func (l *warningLog) WithAttrs([]slog.Attr) slog.Handler { return l }

func (l *warningLog) WithGroup(string) slog.Handler { return l }

func (l *warningLog) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := ""
	r.Attrs(func(a slog.Attr) bool { key += a.Value.String() + " "; return true })
	if l.seen == nil {
		l.seen = map[string]int{}
	}
	l.seen[key]++
	return nil
}

// take returns what was logged since the last call.
func (l *warningLog) take() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := l.seen
	l.seen = nil
	return seen
}

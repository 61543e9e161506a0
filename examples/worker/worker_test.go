package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Main(m)) }

// TestWorker_Memory plays the whole story in a bubble, where it takes no time and no machine is too slow for it.
func TestWorker_Memory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := play(t, "")
		if d := time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)); d > 10*time.Second {
			t.Errorf("the story takes %v", d)
		}
		for _, line := range []string{"CUT OFF", "LOST", "REFUSED", "good for another"} {
			if !strings.Contains(out, line) {
				t.Errorf("nothing is told of %q:\n%s", line, out)
			}
		}
	})
}

func TestWorker_Redis(t *testing.T) {
	play(t, "redis://"+redistest.Shared(t).Addr())
}

func TestWorker_NoServer(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := run(ctx, io.Discard, "redis://127.0.0.1:1"); err == nil {
		t.Error("no error without a server")
	}
}

// TestStory_SummaryFails makes sure that the demonstration can fail.
func TestStory_SummaryFails(t *testing.T) {
	var out bytes.Buffer
	if err := newStory(&out).summary(); err == nil {
		t.Error("no error although nothing happened")
	}
	if got := strings.Count(out.String(), "FAIL"); got != 6 {
		t.Errorf("%d things are reported missing, want all 6:\n%s", got, &out)
	}
}

func play(t *testing.T, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	if err := run(ctx, &out, url); err != nil {
		t.Errorf("%v\n%s", err, &out)
	}
	return out.String()
}

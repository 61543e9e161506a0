package redistest_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// orphanEnv makes this binary run TestOrphan for another instance of itself.
const orphanEnv = "REDISTEST_ORPHAN"

func TestMain(m *testing.M) {
	if os.Getenv(orphanEnv) != "" {
		os.Exit(redistest.Run(m)) // does not end well
	}
	goleak.VerifyTestMain(redistest.Main(m))
}

// plain makes a client try once and not wait long.
func plain(o *redis.Options) {
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.ReadTimeout = 200 * time.Millisecond
}

// patient makes a client try once and wait long enough for whatever comes.
func patient(o *redis.Options) {
	plain(o)
	o.ReadTimeout = 5 * time.Second
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// mustSet fails the test unless c can write.
func mustSet(t *testing.T, c *redis.Client, key string) {
	t.Helper()
	if err := c.Set(testContext(t), key, "v", 0).Err(); err != nil {
		t.Fatalf("SET %s: %v", key, err)
	}
}

// exists asks the server, through no proxy, whether key is there.
func exists(t *testing.T, s *redistest.Server, key string) bool {
	t.Helper()
	n, err := s.Client().Exists(testContext(t), key).Result()
	if err != nil {
		t.Fatalf("EXISTS %s: %v", key, err)
	}
	return n == 1
}

// eventually fails the test unless ok becomes true soon.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

func isTimeout(err error) bool {
	var e interface{ Timeout() bool }
	return errors.As(err, &e) && e.Timeout()
}

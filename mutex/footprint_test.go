package mutex_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/backends/memory"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/mutex"
)

// A held lease costs one goroutine and at most 4 KiB, stack and record in the memory backend included. The leases are renewed a few
// times first: what a renewal needs must not stay.
func TestFootprint_HeldLease(t *testing.T) {
	const leases, limit = 10_000, 4 << 10
	locks, err := mutex.New(memory.New(), mutex.WithTTL(10*time.Second), mutex.WithRenewEvery(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	handles := make([]*lease.Handle, leases)
	names := make([]string, leases)
	for i := range names {
		names[i] = fmt.Sprintf("name:%d", i)
	}

	before := usage()
	for i := range handles {
		if handles[i], err = locks.Lock(ctx, names[i]); err != nil {
			t.Fatal(err)
		}
		handles[i].Lost() // as a worker loop has it
	}
	// Between two waves of renewals is what the leases cost by themselves: the least of some looks.
	after := usage()
	for start := time.Now(); time.Since(start) < 3*time.Second; {
		<-time.After(100 * time.Millisecond)
		if u := usage(); u.heap+u.stack < after.heap+after.stack {
			after = u
		}
	}

	goroutines := float64(after.goroutines-before.goroutines) / leases
	heap, stack := (after.heap-before.heap)/leases, (after.stack-before.stack)/leases
	t.Logf("a held lease: %.2f goroutines, %d bytes of heap, %d bytes of stack", goroutines, heap, stack)
	for _, h := range handles {
		if !h.Valid() {
			t.Fatalf("%s: %v", h.Name(), h.Err())
		}
	}
	if !raceEnabled && (goroutines > 1.05 || heap+stack > limit) {
		t.Errorf("want one goroutine and at most %d bytes", limit)
	}
	if err := locks.Close(ctx); err != nil {
		t.Error(err)
	}
}

type memoryUse struct {
	goroutines  int
	heap, stack int64
}

func usage() memoryUse {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return memoryUse{runtime.NumGoroutine(), int64(m.HeapAlloc), int64(m.StackInuse)}
}

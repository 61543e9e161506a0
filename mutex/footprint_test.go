package mutex_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/backends/memory"
	"github.com/leasehold-go/leasehold/internal/footprint"
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

	before := footprint.Now()
	for i := range handles {
		if handles[i], err = locks.Lock(ctx, names[i]); err != nil {
			t.Fatal(err)
		}
		handles[i].Lost() // as a worker loop has it
	}
	// Between two waves of renewals is what the leases cost by themselves: the least of some looks.
	after := footprint.Now()
	for start := time.Now(); time.Since(start) < 3*time.Second; {
		<-time.After(100 * time.Millisecond)
		if u := footprint.Now(); u.Heap+u.Stack < after.Heap+after.Stack {
			after = u
		}
	}

	goroutines := float64(after.Goroutines-before.Goroutines) / leases
	heap, stack := (after.Heap-before.Heap)/leases, (after.Stack-before.Stack)/leases
	t.Logf("a held lease: %.2f goroutines, %d bytes of heap, %d bytes of stack", goroutines, heap, stack)
	for _, h := range handles {
		if !h.Valid() {
			t.Fatalf("%s: %v", h.Name(), h.Err())
		}
	}
	if !footprint.UnderRace && (goroutines > 1.05 || heap+stack > limit) {
		t.Errorf("want one goroutine and at most %d bytes", limit)
	}
	if err := locks.Close(ctx); err != nil {
		t.Error(err)
	}
}

package redis_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/footprint"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/mutex"
)

// A held lease costs one goroutine and at most 4 KiB. The leases are renewed first: what a renewal needs must not stay.
func TestFootprint_HeldLease(t *testing.T) {
	const limit = 4 << 10
	leases, ttl := 10_000, mutex.DefaultTTL
	if footprint.UnderRace { // where nothing is judged but that it works
		leases, ttl = 2_000, 9*time.Second
	}
	every := ttl / 3
	ctx := t.Context()
	server := redistest.Start(t)
	b := on(t, server.Client())
	locks := lockerOn(t, b, mutex.WithTTL(ttl))
	handles := make([]*lease.Handle, leases)
	names := make([]string, leases)
	for i := range names {
		names[i] = fmt.Sprintf("name:%d", i)
	}
	if h, err := locks.Lock(ctx, "warm"); err != nil {
		t.Fatal(err)
	} else if err := h.Release(ctx); err != nil {
		t.Fatal(err)
	}

	before := footprint.Now()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < leases; i = int(next.Add(1)) - 1 {
				h, err := locks.Lock(ctx, names[i])
				if err != nil {
					t.Error(err)
					return
				}
				h.Lost() // as a worker loop has it
				handles[i] = h
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	server.ResetStats(ctx)
	for end := time.Now().Add(3 * every); scripts(ctx, server) < int64(leases); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d renewals in %v", scripts(ctx, server), 3*every)
		}
	}
	// Between two waves of renewals is what the leases cost by themselves: the least of some looks.
	after := footprint.Now()
	for range 10 {
		time.Sleep(100 * time.Millisecond)
		if u := footprint.Now(); u.Heap+u.Stack < after.Heap+after.Stack {
			after = u
		}
	}
	renewals := scripts(ctx, server)

	goroutines := float64(after.Goroutines-before.Goroutines) / float64(leases)
	heap, stack := (after.Heap-before.Heap)/int64(leases), (after.Stack-before.Stack)/int64(leases)
	t.Logf("a held lease: %.3f goroutines, %d bytes of heap, %d bytes of stack; %d renewals", goroutines, heap, stack, renewals)
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
	if n, err := server.Client().Exists(ctx, b.RecordKey(names[0]), b.RecordKey(names[leases-1])).Result(); n != 0 || err != nil {
		t.Errorf("%d leases are left, %v", n, err)
	}
}

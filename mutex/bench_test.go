package mutex_test

import (
	"context"
	"testing"

	"github.com/leasehold-go/leasehold/backends/memory"
	"github.com/leasehold-go/leasehold/mutex"
)

// BenchmarkMemory_LockRelease is an uncontended lock and release, supervisor included.
func BenchmarkMemory_LockRelease(b *testing.B) {
	locks, err := mutex.New(memory.New())
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		h, err := locks.Lock(ctx, "name")
		if err != nil {
			b.Fatal(err)
		}
		if err := h.Release(ctx); err != nil {
			b.Fatal(err)
		}
	}
	if err := locks.Close(ctx); err != nil {
		b.Fatal(err)
	}
}

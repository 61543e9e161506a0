package memory_test

import (
	"testing"

	"github.com/leasehold-go/leasehold/backends/memory"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/lease/leasetest"
)

func TestConformance(t *testing.T) {
	leasetest.Run(t,
		func(*testing.T) lease.Backend { return memory.New() },
		leasetest.WithBubble(),
		leasetest.WithDelete(func(_ testing.TB, b lease.Backend, name string) { b.(*memory.Backend).Expire(name) }),
		leasetest.WithForget(func(_ testing.TB, b lease.Backend) { b.(*memory.Backend).Forget() }),
		leasetest.WithSecond(func(_ testing.TB, first lease.Backend) lease.Backend { return first }),
	)
}

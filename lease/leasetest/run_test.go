package leasetest_test

import (
	"testing"

	"github.com/benbjohnson/clock"

	"github.com/leasehold-go/leasehold/backends/memory"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/lease/leasetest"
)

func TestRun_Example(t *testing.T) {
	leasetest.Run(t, func(*testing.T) lease.Backend { return newMapStore() }, leasetest.WithBubble())
}

// The kit takes time in three ways, and in each the reference must pass.

func TestRun_Bubble(t *testing.T) {
	leasetest.Run(t, func(*testing.T) lease.Backend { return memory.New() }, leasetest.WithBubble(), sameStore())
}

func TestRun_MockClockInBubble(t *testing.T) {
	clk := clock.NewMock()
	leasetest.Run(t, func(*testing.T) lease.Backend { return memory.New(memory.WithClock(clk)) },
		leasetest.WithBubble(), leasetest.WithAdvance(clk.Add), sameStore())
}

func TestRun_MockClock(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: outside a bubble, what must not happen is looked for in real time")
	}
	clk := clock.NewMock()
	leasetest.Run(t, func(*testing.T) lease.Backend { return memory.New(memory.WithClock(clk)) },
		leasetest.WithAdvance(clk.Add), sameStore())
}

func TestRun_RealTime(t *testing.T) {
	if testing.Short() {
		t.Skip("sleeps for real")
	}
	leasetest.Run(t, func(*testing.T) lease.Backend { return memory.New() }, sameStore())
}

// A network without faults changes nothing, with a queue and without.

func TestRun_Faulty(t *testing.T) {
	leasetest.Run(t, func(t *testing.T) lease.Backend {
		b, faults := leasetest.Faulty(memory.New(), clock.New())
		t.Cleanup(faults.Close)
		return b
	}, leasetest.WithBubble(), sameStore())
}

func TestRun_WithoutQueue(t *testing.T) {
	leasetest.Run(t, func(*testing.T) lease.Backend { return leasetest.WithoutQueue(memory.New()) }, leasetest.WithBubble())
}

// sameStore makes the second client of a store that has only one.
func sameStore() leasetest.Option {
	return leasetest.WithSecond(func(_ testing.TB, first lease.Backend) lease.Backend { return first })
}

package leasetest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/leasehold-go/leasehold/lease"
)

// Faults controls a backend that Faulty has wrapped, and records its calls. All methods are safe for concurrent use.
//
// What becomes of a call is decided when it starts: by the first fault that Next has queued for its method, else by the plan,
// else by none. A partition comes on top of that.
type Faults struct {
	// Fixed after Faulty.
	clk  clock.Clock
	life context.Context // ends with Close
	end  context.CancelFunc

	late sync.WaitGroup // requests on their way after their callers may have gone

	mu          sync.Mutex // guards what follows
	next        map[Op][]Fault
	plan        func(op Op, name string) Fault
	partitioned bool
	healed      chan struct{} // closed and replaced by Heal
	calls       []Call
	running     int
}

// Call is one call of a method, as the recorder saw it.
type Call struct {
	Op Op
	// Claim as it was made. An Acquire or Wait has no token.
	Claim lease.Claim
	TTL   time.Duration
	// Fault that was planned for the call.
	Fault Fault
	// Start and End are instants on the clock. End is zero while the call runs.
	Start, End time.Time
	// Reached is how often the request has reached the inner backend so far.
	Reached int
	// Grant is what the inner backend granted last, whether the caller was told or not.
	Grant lease.Grant
	// Err is what the caller was told.
	Err error
}

func newFaults(clk clock.Clock) *Faults {
	f := &Faults{clk: clk, next: make(map[Op][]Fault), healed: make(chan struct{})}
	f.life, f.end = context.WithCancel(context.Background())
	return f
}

// Next queues faults for the next calls of op that start, one each, whatever their names.
func (f *Faults) Next(op Op, faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next[op] = append(f.next[op], faults...)
}

// Plan sets what decides about calls for which Next has queued nothing; nil stands for no faults. plan is called on the calling
// goroutine, for several calls at once if they start at once.
func (f *Faults) Plan(plan func(op Op, name string) Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan = plan
}

// Partition cuts the backend off until Heal. Requests that have not arrived yet never do, and replies on their way are lost:
// such calls fail when their ctx ends, or at Heal.
func (f *Faults) Partition() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.partitioned = true
}

// Heal ends a partition and lets every call fail that hangs.
func (f *Faults) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.partitioned = false
	close(f.healed)
	f.healed = make(chan struct{})
}

// Calls returns what was called so far, in the order in which the calls started.
func (f *Faults) Calls() []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// Count returns how many calls of op were started.
func (f *Faults) Count(op Op) int {
	n := 0
	for _, c := range f.Calls() {
		if c.Op == op {
			n++
		}
	}
	return n
}

// Running returns how many calls have not returned yet.
func (f *Faults) Running() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.running
}

// Close lets every call fail that hangs or is delayed, drops requests that are late, and blocks until no goroutine of the wrapper is left.
// A call that the inner backend is busy with goes on until its ctx ends. Calls that start later return lease.ErrClosed. Close may be
// called twice.
func (f *Faults) Close() {
	f.mu.Lock()
	f.end()
	f.mu.Unlock()
	f.late.Wait()
}

// call plays one call: it records the start, lets happen what is planned, and records the end.
func (f *Faults) call(ctx context.Context, c Call, send sendFunc) (lease.Grant, error) {
	c.Fault = f.planned(c.Op, c.Claim.Name)
	c.Start = f.clk.Now()
	f.mu.Lock()
	if f.life.Err() != nil {
		f.mu.Unlock()
		return lease.Grant{}, lease.ErrClosed
	}
	t := &trip{f: f, call: len(f.calls), fault: c.Fault, send: send}
	f.calls = append(f.calls, c)
	f.running++
	if c.Fault.Action == Late {
		f.late.Add(1)
	}
	f.mu.Unlock()

	g, err := t.run(ctx)

	now := f.clk.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[t.call].End, f.calls[t.call].Err = now, err
	f.running--
	return g, err
}

func (f *Faults) planned(op Op, name string) Fault {
	f.mu.Lock()
	plan := f.plan
	queued := f.next[op]
	if len(queued) > 0 {
		f.next[op] = queued[1:]
	}
	f.mu.Unlock()
	switch {
	case len(queued) > 0:
		return queued[0]
	case plan != nil:
		return plan(op, name)
	}
	return Fault{}
}

// network returns whether there is a partition, and what is closed when the next Heal comes.
func (f *Faults) network() (partitioned bool, healed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.partitioned, f.healed
}

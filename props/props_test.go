package props

import (
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/leasehold-go/leasehold/lease"
)

// Nothing goes wrong but what users do. A lease is lost only when somebody asked for it.
func TestProps_Calm(t *testing.T) { simulateMachine(t, calm) }

// Workers are stopped for a while, as by a scheduler, a debugger or a suspended machine.
func TestProps_Pauses(t *testing.T) { simulateMachine(t, pauses) }

// Messages are late, lost and repeated, and links are cut.
func TestProps_Network(t *testing.T) { simulateMachine(t, network) }

// Workers die, handles are dropped, and a third party deletes records.
func TestProps_Losses(t *testing.T) { simulateMachine(t, losses) }

// Everything goes wrong at once.
func TestProps_Wild(t *testing.T) { simulateMachine(t, wild) }

func simulateMachine(t *testing.T, p profile) {
	var sum tally
	simulate(t, func(t *rapid.T, started func(*sim)) {
		m := newMachine(t, p)
		started(m.sim)
		defer m.teardown()
		m.run()
		sum.add(&m.hist)
	})
	t.Log(&sum)
}

// tally counts what happened in all cases of a property.
type tally struct {
	mu                                  sync.Mutex
	cases, calls, granted, reqs, events int
	lost                                map[lease.Reason]int
}

func (y *tally) add(h *history) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.lost == nil {
		y.lost = map[lease.Reason]int{}
	}
	y.cases++
	y.calls += len(h.calls)
	y.granted += len(h.holds)
	y.reqs += len(h.reqs)
	y.events += len(h.lines)
	for _, hd := range h.holds {
		if hd.state == lease.Lost {
			y.lost[hd.reason]++
		}
	}
}

func (y *tally) String() string {
	return fmt.Sprintf("%d cases: %d calls, %d granted, lost %v; %d requests, %d events", y.cases, y.calls, y.granted, y.lost, y.reqs, y.events)
}

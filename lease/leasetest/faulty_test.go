package leasetest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/leasehold-go/leasehold/backends/memory"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/lease/leasetest"
)

const ttl = time.Minute

var request = lease.Request{Name: "x", Owner: "a", TTL: ttl}

// network is a backend behind Faulty, in a bubble. Time moves when clk does.
type network struct {
	*testing.T
	clk     *clock.Mock
	inner   *memory.Backend
	backend lease.Backend
	faults  *leasetest.Faults
}

func inBubble(t *testing.T, f func(n *network)) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{T: t, clk: clock.NewMock()}
		n.inner = memory.New(memory.WithClock(n.clk))
		n.backend, n.faults = leasetest.Faulty(n.inner, n.clk)
		defer n.faults.Close()
		f(n)
	})
}

// acquire starts an Acquire through the network and returns where its error comes.
func (n *network) acquire(ctx context.Context) <-chan error {
	errs := make(chan error, 1)
	go func() {
		_, err := n.backend.Acquire(ctx, request)
		errs <- err
	}()
	synctest.Wait()
	return errs
}

func (n *network) wantRunning(errs <-chan error) {
	n.Helper()
	select {
	case err := <-errs:
		n.Fatalf("the call has returned with error %v", err)
	default:
	}
}

func (n *network) wantErr(errs <-chan error, want error) {
	n.Helper()
	synctest.Wait()
	select {
	case err := <-errs:
		if !errors.Is(err, want) {
			n.Fatalf("got error %v, want %v", err, want)
		}
	default:
		n.Fatalf("the call is still running")
	}
}

// wantHeld checks whether anybody has the name in the store.
func (n *network) wantHeld(want bool) {
	n.Helper()
	_, err := n.inner.Acquire(n.Context(), lease.Request{Name: "x", Owner: "probe", TTL: ttl})
	if got := errors.Is(err, lease.ErrHeld); got != want {
		n.Fatalf("held in the store: got %v, want %v", got, want)
	}
	if err == nil {
		_ = n.inner.Release(n.Context(), lease.Claim{Name: "x", Owner: "probe"})
	}
}

func (n *network) last() leasetest.Call {
	calls := n.faults.Calls()
	return calls[len(calls)-1]
}

func TestFaulty_IsAQueuerOnlyIfTheInnerIs(t *testing.T) {
	for _, inner := range []lease.Backend{memory.New(), newMapStore(), leasetest.WithoutQueue(memory.New())} {
		_, want := inner.(lease.Queuer)
		b, faults := leasetest.Faulty(inner, clock.New())
		defer faults.Close()
		if _, got := b.(lease.Queuer); got != want {
			t.Errorf("%T behind Faulty is a Queuer: got %v, want %v", inner, got, want)
		}
		if b.Info() != inner.Info() {
			t.Errorf("Info: got %v, want %v", b.Info(), inner.Info())
		}
	}
	if _, ok := leasetest.WithoutQueue(memory.New()).(lease.Queuer); ok {
		t.Errorf("WithoutQueue returns a Queuer")
	}
}

func TestFaulty_AtOnce(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		fault   leasetest.Fault
		want    error
		reached int
	}{
		"Pass":               {leasetest.Fault{}, nil, 1},
		"DropRequest":        {leasetest.Fault{Action: leasetest.DropRequest}, leasetest.ErrInjected, 0},
		"DropRequestWithErr": {leasetest.Fault{Action: leasetest.DropRequest, Err: boom}, boom, 0},
		"DropReply":          {leasetest.Fault{Action: leasetest.DropReply}, leasetest.ErrInjected, 1},
		"DropReplyWithErr":   {leasetest.Fault{Action: leasetest.DropReply, Err: boom}, boom, 1},
		"Duplicate":          {leasetest.Fault{Action: leasetest.Duplicate}, nil, 2},
		"Resend":             {leasetest.Fault{Action: leasetest.Resend}, nil, 2},
		"LateByNothing":      {leasetest.Fault{Action: leasetest.Late}, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(n *network) {
				n.faults.Next(leasetest.OpAcquire, c.fault)
				n.wantErr(n.acquire(n.Context()), c.want)
				if got := n.last().Reached; got != c.reached {
					n.Errorf("the request reached the store %d times, want %d", got, c.reached)
				}
				n.wantHeld(c.reached > 0)
				n.wantErr(n.acquire(n.Context()), nil) // one fault, one call
			})
		})
	}
}

// The two replies of a request that arrives twice differ for a release, which is why a client must not resend it.
func TestFaulty_DuplicateAndResendDiffer(t *testing.T) {
	inBubble(t, func(n *network) {
		for _, c := range []struct {
			action leasetest.Action
			want   error
		}{{leasetest.Duplicate, nil}, {leasetest.Resend, lease.ErrTaken}} {
			g, err := n.backend.Acquire(n.Context(), request)
			if err != nil {
				n.Fatalf("Acquire: %v", err)
			}
			ctx, cancel := context.WithCancel(n.Context())
			waited := make(chan struct{})
			go func() { // whoever is handed the lease
				defer close(waited)
				_, _ = n.inner.Wait(ctx, lease.Request{Name: "x", Owner: "b", TTL: ttl}, nil)
			}()
			synctest.Wait()
			n.faults.Next(leasetest.OpRelease, leasetest.Fault{Action: c.action})
			err = n.backend.Release(n.Context(), lease.Claim{Name: "x", Owner: "a", Token: g.Token})
			if !errors.Is(err, c.want) {
				n.Errorf("%v: got error %v, want %v", c.action, err, c.want)
			}
			cancel()
			<-waited
			_ = n.inner.Release(n.Context(), lease.Claim{Name: "x", Owner: "b"})
		}
	})
}

func TestFaulty_Delays(t *testing.T) {
	inBubble(t, func(n *network) {
		n.faults.Next(leasetest.OpAcquire, leasetest.Fault{Before: time.Second, After: 2 * time.Second})
		errs := n.acquire(n.Context())
		n.clk.Add(time.Second - 1)
		n.wantHeld(false)
		n.clk.Add(1)
		n.wantHeld(true)
		n.clk.Add(2*time.Second - 1)
		n.wantRunning(errs)
		n.clk.Add(1)
		n.wantErr(errs, nil)
		if took := n.last().End.Sub(n.last().Start); took != 3*time.Second {
			n.Errorf("the record says that the call took %v, want 3s", took)
		}
	})
}

func TestFaulty_CtxEndsInADelay(t *testing.T) {
	for name, c := range map[string]struct {
		fault leasetest.Fault
		held  bool
	}{
		"Before": {leasetest.Fault{Before: time.Second}, false},
		"After":  {leasetest.Fault{After: time.Second}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(n *network) {
				n.faults.Next(leasetest.OpAcquire, c.fault)
				ctx, cancel := context.WithCancel(n.Context())
				errs := n.acquire(ctx)
				n.wantRunning(errs)
				cancel()
				n.wantErr(errs, context.Canceled)
				n.clk.Add(2 * time.Second)
				n.wantHeld(c.held)
			})
		})
	}
}

func TestFaulty_LateRequestArrivesAfterItsCallerGaveUp(t *testing.T) {
	inBubble(t, func(n *network) {
		n.faults.Next(leasetest.OpAcquire, leasetest.Fault{Action: leasetest.Late, Before: time.Second})
		ctx, cancel := context.WithCancel(n.Context())
		errs := n.acquire(ctx)
		cancel()
		n.wantErr(errs, context.Canceled)
		n.wantHeld(false)
		n.clk.Add(time.Second)
		n.wantHeld(true)
		if got := n.last(); got.Grant.Token == 0 || !errors.Is(got.Err, context.Canceled) {
			n.Errorf("got record %+v, want the grant that the caller was not told of", got)
		}
	})
}

func TestFaulty_CloseDropsLateRequests(t *testing.T) {
	inBubble(t, func(n *network) {
		n.faults.Next(leasetest.OpAcquire, leasetest.Fault{Action: leasetest.Late, Before: time.Second})
		ctx, cancel := context.WithCancel(n.Context())
		errs := n.acquire(ctx)
		cancel()
		n.wantErr(errs, context.Canceled)
		n.faults.Close()
		n.clk.Add(time.Second)
		n.wantHeld(false)
	})
}

func TestFaulty_Hangs(t *testing.T) {
	inBubble(t, func(n *network) {
		n.faults.Next(leasetest.OpAcquire, leasetest.Fault{Action: leasetest.Hang}, leasetest.Fault{Action: leasetest.HangForever})
		ctx, cancel := context.WithCancel(n.Context())
		polite, deaf := n.acquire(ctx), n.acquire(ctx)
		n.wantRunning(polite)
		cancel()
		n.wantErr(polite, context.Canceled)
		n.wantRunning(deaf)
		if got := n.faults.Running(); got != 1 {
			n.Errorf("Running: got %d, want 1", got)
		}
		n.faults.Heal()
		n.wantErr(deaf, leasetest.ErrInjected)
		n.wantHeld(false)
	})
}

func TestFaulty_Partition(t *testing.T) {
	inBubble(t, func(n *network) {
		n.faults.Next(leasetest.OpAcquire, leasetest.Fault{After: time.Second})
		onItsWayBack := n.acquire(n.Context())
		n.faults.Partition()
		ctx, cancel := context.WithCancel(n.Context())
		gaveUp, patient := n.acquire(ctx), n.acquire(n.Context())
		n.clk.Add(time.Second)
		n.wantRunning(onItsWayBack)
		cancel()
		n.wantErr(gaveUp, context.Canceled)
		n.wantRunning(patient)
		if n.last().Reached != 0 {
			n.Errorf("a request has passed the partition")
		}
		n.faults.Heal()
		n.wantErr(onItsWayBack, leasetest.ErrInjected)
		n.wantErr(patient, leasetest.ErrInjected)
		n.wantErr(n.acquire(n.Context()), nil)
	})
}

func TestFaulty_PlanDecidesWhereNextDoesNot(t *testing.T) {
	inBubble(t, func(n *network) {
		n.faults.Plan(func(op leasetest.Op, name string) leasetest.Fault {
			if op == leasetest.OpRenew && name == "x" {
				return leasetest.Fault{Action: leasetest.DropRequest}
			}
			return leasetest.Fault{}
		})
		g, err := n.backend.Acquire(n.Context(), request)
		if err != nil {
			n.Fatalf("Acquire: %v", err)
		}
		claim := lease.Claim{Name: "x", Owner: "a", Token: g.Token}
		n.faults.Next(leasetest.OpRenew, leasetest.Fault{})
		for i, want := range []error{nil, leasetest.ErrInjected, leasetest.ErrInjected} {
			if _, err := n.backend.Renew(n.Context(), claim, ttl); !errors.Is(err, want) {
				n.Errorf("renewal %d: got error %v, want %v", i+1, err, want)
			}
		}
		n.faults.Plan(nil)
		if _, err := n.backend.Renew(n.Context(), claim, ttl); err != nil {
			n.Errorf("renewal without a plan: got error %v, want nil", err)
		}
		if got := n.faults.Count(leasetest.OpRenew); got != 4 {
			n.Errorf("Count: got %d renewals, want 4", got)
		}
		if got := n.last(); got.Op != leasetest.OpRenew || got.Claim != claim || got.TTL != ttl || got.Grant.Token != g.Token {
			n.Errorf("got record %+v, want the renewal of %+v for %v", got, claim, ttl)
		}
	})
}

func TestFaults_Close(t *testing.T) {
	inBubble(t, func(n *network) {
		n.faults.Next(leasetest.OpAcquire, leasetest.Fault{Action: leasetest.HangForever}, leasetest.Fault{Before: time.Second})
		hanging, delayed := n.acquire(n.Context()), n.acquire(n.Context())
		n.faults.Close()
		n.faults.Close()
		n.wantErr(hanging, leasetest.ErrInjected)
		n.wantErr(delayed, leasetest.ErrInjected)
		n.wantErr(n.acquire(n.Context()), lease.ErrClosed)
		if got := n.faults.Count(leasetest.OpAcquire); got != 2 {
			n.Errorf("Count: got %d, want 2: a call after Close is none", got)
		}
	})
}

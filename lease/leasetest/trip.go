package leasetest

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/internal/ctxerr"
	"github.com/leasehold-go/leasehold/lease"
)

// sendFunc calls the inner backend.
type sendFunc func(ctx context.Context) (lease.Grant, error)

// trip is the way of one call's request to the inner backend, and of its reply back.
type trip struct {
	f     *Faults
	call  int // its place in the record
	fault Fault
	send  sendFunc
}

// run makes the trip as its fault says.
func (t *trip) run(ctx context.Context) (lease.Grant, error) {
	if t.fault.Action == Late {
		return t.late(ctx)
	}
	if err := t.travel(ctx, t.fault.Before); err != nil {
		return lease.Grant{}, err
	}
	switch t.fault.Action {
	case DropRequest:
		return lease.Grant{}, t.fault.err()
	case Hang, HangForever:
		if t.fault.Action == HangForever {
			ctx = context.WithoutCancel(ctx)
		}
		_, healed := t.f.network()
		return lease.Grant{}, t.hang(ctx, healed)
	}
	g, err := t.reach(ctx)
	switch t.fault.Action {
	case Duplicate:
		_, _ = t.reach(ctx)
	case Resend:
		g, err = t.reach(ctx)
	case DropReply:
		return lease.Grant{}, t.fault.err()
	}
	return t.reply(ctx, g, err)
}

// late sends the request on a way of its own, which the end of ctx does not stop, and waits for the reply as long as ctx allows.
func (t *trip) late(ctx context.Context) (lease.Grant, error) {
	way, stop := context.WithCancel(context.WithoutCancel(ctx))
	unlink := context.AfterFunc(t.f.life, stop)
	done := make(chan struct{})
	var g lease.Grant
	var err error
	go func() {
		defer t.f.late.Done() // added when the call was recorded, so that Close cannot miss it
		defer close(done)
		defer stop()
		defer unlink()
		if err = t.travel(way, t.fault.Before); err == nil {
			g, err = t.reach(way)
		}
	}()
	select {
	case <-done:
		return t.reply(ctx, g, err)
	case <-ctx.Done():
		return lease.Grant{}, ctxerr.Of(ctx)
	}
}

// reach delivers the request and records what came of it.
func (t *trip) reach(ctx context.Context) (lease.Grant, error) {
	t.f.mu.Lock()
	t.f.calls[t.call].Reached++
	t.f.mu.Unlock()
	g, err := t.send(ctx)
	if err == nil {
		t.f.mu.Lock()
		t.f.calls[t.call].Grant = g
		t.f.mu.Unlock()
	}
	return g, err
}

// reply brings what the inner backend said back to the caller.
func (t *trip) reply(ctx context.Context, g lease.Grant, err error) (lease.Grant, error) {
	if lost := t.travel(ctx, t.fault.After); lost != nil {
		return lease.Grant{}, lost
	}
	return g, err
}

// travel takes d, and hangs where there is a partition.
func (t *trip) travel(ctx context.Context, d time.Duration) error {
	if d > 0 {
		timer := t.f.clk.Timer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctxerr.Of(ctx)
		case <-t.f.life.Done():
			return t.fault.err()
		}
	}
	if partitioned, healed := t.f.network(); partitioned {
		return t.hang(ctx, healed)
	}
	return nil
}

// hang blocks until ctx ends, or Heal, which closes healed, or Close let the call fail.
func (t *trip) hang(ctx context.Context, healed <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return ctxerr.Of(ctx)
	case <-healed:
	case <-t.f.life.Done():
	}
	return t.fault.err()
}

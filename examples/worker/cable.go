package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/lease"
)

// cable is the way from one worker to the lease store. While it is pulled, requests go nowhere and nobody says so, as in a
// partitioned network: each waits until its context ends or the cable is plugged in again.
type cable struct {
	lease.Queuer

	mu   sync.Mutex
	gone chan struct{} // nil while plugged in; closed by plug
}

// errNoAnswer is an outcome that is unknown: the request may have arrived or not.
var errNoAnswer = errors.New("no answer from the lease store")

func (c *cable) pull() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone == nil {
		c.gone = make(chan struct{})
	}
}

func (c *cable) plug() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone != nil {
		close(c.gone)
		c.gone = nil
	}
}

// pass returns when a request may go through.
func (c *cable) pass(ctx context.Context) error {
	c.mu.Lock()
	gone := c.gone
	c.mu.Unlock()
	if gone == nil {
		return nil
	}
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return errNoAnswer
	}
}

func (c *cable) Acquire(ctx context.Context, req lease.Request) (lease.Grant, error) {
	if err := c.pass(ctx); err != nil {
		return lease.Grant{}, err
	}
	return c.Queuer.Acquire(ctx, req)
}

func (c *cable) Wait(ctx context.Context, req lease.Request, held func(lease.Holder)) (lease.Grant, error) {
	if err := c.pass(ctx); err != nil {
		return lease.Grant{}, err
	}
	return c.Queuer.Wait(ctx, req, held)
}

func (c *cable) Renew(ctx context.Context, claim lease.Claim, ttl time.Duration) (lease.Grant, error) {
	if err := c.pass(ctx); err != nil {
		return lease.Grant{}, err
	}
	return c.Queuer.Renew(ctx, claim, ttl)
}

func (c *cable) Release(ctx context.Context, claim lease.Claim) error {
	if err := c.pass(ctx); err != nil {
		return err
	}
	return c.Queuer.Release(ctx, claim)
}

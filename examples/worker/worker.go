package main

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/mutex"
)

// pace is how long an order takes.
const pace = 250 * time.Millisecond

// worker books orders while it holds the lease.
type worker struct {
	name  string
	locks *mutex.Locker
	cable *cable // to the lease store
	story *story
}

// run waits for the lease, works under it, and waits for it again, until nothing is left to do.
func (w *worker) run(ctx context.Context) error {
	for !w.story.over() {
		h, err := w.locks.Lock(ctx, w.story.lease, mutex.WithOnWait(w.waits))
		if err != nil {
			return err
		}
		err = errors.Join(w.turn(ctx, h), h.Close())
		if err != nil && !errors.Is(err, lease.ErrLost) {
			return err
		}
	}
	return nil
}

// loop books up to n orders, one after the other. It is the usual shape of a worker: a select with Lost in it.
func (w *worker) loop(h *lease.Handle, n int) error {
	orders := time.NewTicker(pace)
	defer orders.Stop()
	for range n {
		select {
		case <-h.Lost():
			w.story.lost(w, h)
			return h.Err()
		case <-orders.C:
			if err := w.book(h); err != nil {
				return err
			}
		}
	}
	return nil
}

// pipeline books up to n orders with three goroutines that pass them on. Nothing in them knows of the lease, and yet all of
// them end with it: the group's context is a child of the handle's.
func (w *worker) pipeline(h *lease.Handle, n int) error {
	g, ctx := errgroup.WithContext(h.Context())
	picked, packed := make(chan int), make(chan int)
	g.Go(func() error {
		defer close(picked)
		for i := range n {
			if err := handle(ctx, i, picked); err != nil {
				return err
			}
		}
		return nil
	})
	g.Go(func() error {
		defer close(packed)
		for i := range picked {
			if err := handle(ctx, i, packed); err != nil {
				return err
			}
		}
		return nil
	})
	g.Go(func() error {
		for range packed {
			if err := w.book(h); err != nil {
				return err
			}
		}
		return nil
	})
	err := g.Wait()
	if errors.Is(err, lease.ErrLost) {
		w.story.lost(w, h)
	}
	return err
}

// handle takes its time and passes order i on, unless ctx ends before. The cause of that is what Handle.Err returns.
func handle(ctx context.Context, i int, next chan<- int) error {
	select {
	case <-time.After(pace):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case next <- i:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// book writes the next order to the ledger. The token goes with it.
func (w *worker) book(h *lease.Handle) error {
	order := w.story.ledger.next()
	if err := w.story.ledger.book(h.Token(), order); err != nil {
		return err
	}
	w.say("booked order %d; the lease is good for another %v", order, h.Remaining().Round(time.Millisecond))
	return nil
}

package main

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/mutex"
)

const (
	cutAfter  = 500 * time.Millisecond // before the first renewal
	untilLost = 1000                   // orders, more than can be booked
)

// turn does what the story has in store for the first holder of the lease, for the second, and so on.
func (w *worker) turn(ctx context.Context, h *lease.Handle) error {
	switch w.story.granted(w, h) {
	case 1:
		defer w.pullCable(ctx, h)()
		err := w.loop(h, untilLost)
		w.lateWrite(ctx, h)
		return err
	case 2:
		defer w.say("is done for now, and releases the lease")
		return w.loop(h, 3)
	case 3:
		defer w.pullCable(ctx, h)()
		err := w.pipeline(h, untilLost)
		w.story.pipelineEnded(w, err)
		return err
	case 4:
		defer w.story.end()
		return w.pipeline(h, 3)
	}
	w.say("finds nothing left to do, and releases the lease")
	return nil
}

// pullCable cuts the worker off from the lease store in a little while. The function that it returns plugs the cable in again,
// when the next holder is at work.
func (w *worker) pullCable(ctx context.Context, h *lease.Handle) (plug func()) {
	cut := time.AfterFunc(cutAfter, func() {
		w.cable.pull()
		w.say("is CUT OFF from the lease store, and does not know it")
	})
	return func() {
		cut.Stop()
		w.story.ledger.awaitTokenAbove(ctx, h.Token())
		w.cable.plug()
	}
}

// lateWrite is a write that left while the lease was held, and reaches the ledger after the first write of the next holder.
func (w *worker) lateWrite(ctx context.Context, h *lease.Handle) {
	order := w.story.ledger.next()
	w.story.ledger.awaitTokenAbove(ctx, h.Token())
	err := w.story.ledger.book(h.Token(), order)
	w.story.late(err)
	w.say("(a write from before, stuck on its way until now, reaches the ledger:) %v", err)
}

// waits is told while the worker waits.
func (w *worker) waits(news mutex.Waiting) {
	if news.Attempt == 1 {
		w.say("waits for the lease, %s has it", news.Holder.Label)
	}
}

func (w *worker) say(text string, args ...any) { w.story.say(w.name, text, args...) }

// why returns what a lost handle's error tells beyond its name and token.
func why(err error) string {
	var lost *lease.LostError
	switch {
	case !errors.As(err, &lost):
		return "not lost"
	case lost.Err != nil:
		return lost.Reason.String() + ", " + lost.Err.Error()
	}
	return lost.Reason.String()
}

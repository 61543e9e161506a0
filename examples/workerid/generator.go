package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/mutex"
)

// An id has, from the top, a zero bit, 41 bits of milliseconds since epoch, 10 of the worker and 12 of a sequence.
const (
	workerBits   = 10
	sequenceBits = 12
)

var epoch = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// patience is how far the clock may be set back and still be waited for.
const patience = time.Second

// errAllTaken says that every worker id is leased to somebody else.
var errAllTaken = errors.New("all worker ids are taken")

// take leases the first free one of n worker ids, beginning anywhere, so that processes which start together do not all try
// the same. Then it waits for skew: the holder before may have issued ids up to the end of its lease by a clock that was so far ahead.
func take(ctx context.Context, locks *mutex.Locker, n int, skew time.Duration) (*generator, error) {
	if n < 1 || n > 1<<workerBits {
		return nil, fmt.Errorf("%d worker ids: must be 1 to %d", n, 1<<workerBits)
	}
	first := rand.IntN(n)
	for i := range n {
		worker := (first + i) % n
		h, err := locks.TryLock(ctx, fmt.Sprintf("workerid/%d", worker))
		switch {
		case errors.Is(err, lease.ErrHeld):
			continue
		case err != nil:
			return nil, err
		}
		select {
		case <-time.After(skew):
			return &generator{worker: worker, h: h}, nil
		case <-h.Context().Done():
			return nil, errors.Join(context.Cause(h.Context()), h.Close())
		}
	}
	return nil, errAllTaken
}

// generator issues ids under one worker id. It is safe for concurrent use.
type generator struct {
	worker int
	h      *lease.Handle

	mu       sync.Mutex // guards what follows
	last     int64      // the latest millisecond that was used, never less than before
	sequence int64
}

// next returns a new id, or an error that matches lease.ErrLost or lease.ErrReleased when the worker id is not this generator's
// any more.
func (g *generator) next() (int64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.advance(); err != nil {
		return 0, err
	}
	// Order matters: the time is read first and the lease looked at after, so the time is one at which the lease was valid. Valid
	// is false from the end of trust on, however late Lost is noticed, and from the moment that Lost is closed.
	if !g.h.Valid() {
		return 0, g.why()
	}
	return g.last<<(workerBits+sequenceBits) | int64(g.worker)<<sequenceBits | g.sequence, nil
}

// advance moves to the next sequence number, or to the present millisecond. It waits when the sequence is used up, or when the
// clock was set back a little.
func (g *generator) advance() error {
	for {
		now := time.Since(epoch).Milliseconds()
		switch {
		case now > g.last:
			g.last, g.sequence = now, 0
			return nil
		case now == g.last && g.sequence+1 < 1<<sequenceBits:
			g.sequence++
			return nil
		case now < g.last-patience.Milliseconds():
			return fmt.Errorf("the clock was set back by %d ms", g.last-now)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-g.h.Done():
			return g.why()
		}
	}
}

// why returns what ended the lease. Its trust may be over an instant before that is noticed.
func (g *generator) why() error {
	if err := g.h.Err(); err != nil {
		return err
	}
	return lease.ErrLost
}

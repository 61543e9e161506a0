package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/lease"
)

// ledger is the storage that the lease guards. It is fenced: it keeps the highest token that it has seen, and refuses a write
// that carries a lower one. No lock can do this in its place, because a write may leave while the lease is held and arrive
// when it is not.
type ledger struct {
	mu      sync.Mutex
	highest lease.Token
	booked  int // orders 1 to booked are in the ledger
}

// staleError says that a write was refused because somebody with a higher token has written before.
type staleError struct{ token, highest lease.Token }

func (e *staleError) Error() string {
	return fmt.Sprintf("REFUSED, token %d is below %d", e.token, e.highest)
}

// book enters an order. An equal token is the same holder writing again.
func (l *ledger) book(token lease.Token, order int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if token < l.highest {
		return &staleError{token, l.highest}
	}
	l.highest = token
	if order != l.booked+1 {
		return fmt.Errorf("order %d was booked after order %d", order, l.booked)
	}
	l.booked = order
	return nil
}

// next returns the number of the next order to book.
func (l *ledger) next() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.booked + 1
}

// awaitTokenAbove returns when somebody with a higher token has written, or ctx ends.
func (l *ledger) awaitTokenAbove(ctx context.Context, token lease.Token) {
	for l.seen() <= token && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
}

func (l *ledger) seen() lease.Token {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.highest
}

package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasehold-go/leasehold/backends/memory"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/mutex"
)

// ctx is what a program has already: that of a request, or of its main function.
var ctx = context.Background()

// newLocker returns a Locker on a store of its own.
func newLocker() *mutex.Locker {
	locks, err := mutex.New(memory.New())
	if err != nil {
		panic(err)
	}
	return locks
}

// Lock waits until the lease is granted. The handle that it returns is the only thing that releases it.
func Example() {
	locks := newLocker()
	defer locks.Close(ctx)

	h, err := locks.Lock(ctx, "orders:42")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer h.Close()

	fmt.Println(h.Name(), h.State(), h.Valid())
	// Output: orders:42 held true
}

// A worker selects on Lost beside its work, and stops when the lease is gone. Here it is lost because it was held longer than
// WithMaxHold allows.
func Example_lost() {
	locks := newLocker()
	defer locks.Close(ctx)
	jobs := make(chan string, 1)
	jobs <- "the only job"

	h, err := locks.Lock(ctx, "queue", mutex.WithMaxHold(20*time.Millisecond))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer h.Close()

	for {
		select {
		case <-h.Lost():
			var lost *lease.LostError
			fmt.Println(errors.As(h.Err(), &lost), lost.Reason)
			return
		case job := <-jobs:
			fmt.Println(job)
		}
	}
	// Output:
	// the only job
	// true longest hold reached
}

// Do locks, calls a function, and releases. The function's context ends with the lease.
func Example_do() {
	locks := newLocker()
	defer locks.Close(ctx)

	err := locks.Do(ctx, "orders:42", func(ctx context.Context, h *lease.Handle) error {
		fmt.Println("working under", h.Name(), lease.FromContext(ctx) == h)
		return nil
	})
	fmt.Println(err)
	// Output:
	// working under orders:42 true
	// <nil>
}

// A pipeline on the context of a handle ends with the lease. The cause of the context says how it ended.
func Example_errgroup() {
	locks := newLocker()
	defer locks.Close(ctx)

	h, err := locks.Lock(ctx, "import", mutex.WithMaxHold(20*time.Millisecond))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer h.Close()

	g, ctx := errgroup.WithContext(h.Context())
	for range 3 {
		g.Go(func() error {
			<-ctx.Done() // at work for longer than the lease lasts
			return context.Cause(ctx)
		})
	}
	fmt.Println(errors.Is(g.Wait(), lease.ErrLost))
	// Output: true
}

// Contention, the end of a wait, and bad input are told apart by errors.Is.
func Example_errors() {
	locks := newLocker()
	defer locks.Close(ctx)
	h, err := locks.Lock(ctx, "orders:42", mutex.WithLabel("host-1"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer h.Close()

	tell := func(what string, err error) {
		fmt.Println(what+":", errors.Is(err, lease.ErrHeld), errors.Is(err, context.DeadlineExceeded),
			errors.Is(err, context.Canceled), errors.Is(err, lease.ErrInvalid))
	}

	_, err = locks.TryLock(ctx, "orders:42")
	tell("one try", err)
	var held *lease.HeldError
	if errors.As(err, &held) {
		fmt.Println("held by", held.Holder.Label)
	}

	_, err = locks.Lock(ctx, "orders:42", mutex.WithWait(10*time.Millisecond))
	tell("wait over", err)

	cancelled, cancel := context.WithCancel(ctx)
	time.AfterFunc(10*time.Millisecond, cancel)
	_, err = locks.Lock(cancelled, "orders:42")
	tell("cancelled", err)

	_, err = locks.Lock(ctx, "", mutex.WithTTL(time.Millisecond))
	tell("bad input", err)
	fmt.Println(err)
	// Output:
	// one try: true false false false
	// held by host-1
	// wait over: true true false false
	// cancelled: true false true false
	// bad input: false false false true
	// lease: invalid name "": must not be empty
	// lease: invalid WithTTL 1ms: must be from 10ms to 876000h0m0s
}

// register is storage that is fenced: it keeps the highest token that it has seen, and refuses a write that carries a lower one.
// In SQL that is a column and "UPDATE … SET value = ?, token = ? WHERE id = ? AND token <= ?".
type register struct {
	value   string
	highest lease.Token
}

func (r *register) write(value string, token lease.Token) error {
	if token < r.highest {
		return errors.New("refused: a newer holder has written")
	}
	r.value, r.highest = value, token
	return nil
}

// The token goes with every write. So a write that comes late, from a process that was paused at the wrong moment, is refused by
// the storage, which is something that no lock can do.
func Example_fencing() {
	locks := newLocker()
	defer locks.Close(ctx)
	var db register

	paused, err := locks.Lock(ctx, "account:7")
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = paused.Close() // stands for a pause that was longer than the lease

	h, err := locks.Lock(ctx, "account:7")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer h.Close()

	fmt.Println(db.write("new", h.Token()))
	fmt.Println(db.write("newer", h.Token())) // the same holder again
	fmt.Println(db.write("late", paused.Token()))
	fmt.Println(db.value)
	// Output:
	// <nil>
	// <nil>
	// refused: a newer holder has written
	// newer
}

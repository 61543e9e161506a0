// Errgroup shows that a pipeline of goroutines ends with the lease that it runs under.
//
//	go run ./examples/errgroup
//
// An import runs as an errgroup on the context of a lease. The first run ends by itself. The second loses its lease half-way,
// here because it holds it longer than WithMaxHold allows; a partition, a deleted record or an operator would do the same. Every
// goroutine of the group then returns, and Do's error says why.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasehold-go/leasehold/backends/memory"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/mutex"
)

const (
	rows   = 20
	perRow = 20 * time.Millisecond
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "errgroup:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	locks, err := mutex.New(memory.New())
	if err != nil {
		return err
	}
	defer locks.Close(ctx)

	stored := 0
	work := func(ctx context.Context, h *lease.Handle) error {
		stored = 0
		return importAll(ctx, func(row int) {
			stored++ // a real import sends h.Token() with every row
		})
	}

	if err := locks.Do(ctx, "import", work); err != nil {
		return err
	}
	fmt.Fprintf(out, "first run: %d of %d rows\n", stored, rows)

	err = locks.Do(ctx, "import", work, mutex.WithMaxHold(rows*perRow/2))
	var lost *lease.LostError
	if !errors.As(err, &lost) {
		return fmt.Errorf("the second run should have lost its lease, but: %v", err)
	}
	fmt.Fprintf(out, "second run: stopped after %d rows: %v\n", stored, lost.Reason)
	return nil
}

// importAll reads and stores all rows. It knows contexts and no leases.
func importAll(ctx context.Context, store func(row int)) error {
	g, ctx := errgroup.WithContext(ctx)
	read := make(chan int)
	g.Go(func() error {
		defer close(read)
		for row := range rows {
			select {
			case read <- row:
			case <-ctx.Done():
				return context.Cause(ctx) // the handle's *lease.LostError
			}
		}
		return nil
	})
	g.Go(func() error {
		for row := range read {
			select {
			case <-time.After(perRow):
				store(row)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
	return g.Wait()
}

// Worker shows in a few seconds what Leasehold is for. It needs no set-up:
//
//	go run ./examples/worker
//	go run ./examples/worker -redis redis://127.0.0.1:6379
//
// Three workers book orders into one ledger, and only one of them may at a time. Twice the one that does is cut off from the
// lease store while it works. The program tells what happens, checks it, and exits with 1 if something did not happen as it
// should.
//
// Read worker.go first: it is what a user of Leasehold writes. The other files are the stage: a cable that can be pulled, a
// ledger that compares fencing tokens, and the story, which says whose turn brings what and watches.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasehold-go/leasehold/mutex"
)

// ttl is short, so that nobody has to wait long for a lease that nobody renews any more.
const ttl = 2 * time.Second

func main() {
	url := flag.String("redis", "", "keep the lease in the Redis at this `URL`, as in redis://127.0.0.1:6379; default: in memory")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout, *url); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

// run plays the story and returns an error unless all of it happened.
func run(ctx context.Context, out io.Writer, url string) error {
	st, err := openStore(ctx, url)
	if err != nil {
		return err
	}
	defer st.close()

	// Three goroutines stand for three processes: each has its own connection, and a Locker of its own.
	var workers []*worker
	for _, name := range []string{"ada", "ben", "cleo"} {
		conn, err := st.connect()
		if err != nil {
			return err
		}
		c := &cable{Queuer: conn}
		locks, err := mutex.New(c, mutex.WithTTL(ttl), mutex.WithLabel(name))
		if err != nil {
			return err
		}
		defer locks.Close(ctx)
		workers = append(workers, &worker{name: name, locks: locks, cable: c})
	}

	fmt.Fprintf(out, "Three workers, one ledger, one lease of %v in %s.\n\n", ttl, st.name)
	s := newStory(out)
	g, ctx := errgroup.WithContext(ctx)
	for _, w := range workers {
		w.story = s
		g.Go(func() error { return w.run(ctx) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return s.summary()
}

// Workerid leases one of N worker ids, as generators of Snowflake ids need it, and issues ids under it.
//
//	go run ./examples/workerid -redis redis://127.0.0.1:6379
//
// Two processes with the same worker id would issue the same ids. So an id is issued only while the lease on the worker id is
// valid. See generator.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/backends/memory"
	"github.com/leasehold-go/leasehold/backends/redis"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/mutex"
)

type config struct {
	url   string
	local bool
	ids   int
	every time.Duration
	skew  time.Duration
}

func main() {
	var c config
	flag.StringVar(&c.url, "redis", "", "keep the leases in the Redis at this `URL`, as in redis://127.0.0.1:6379")
	flag.BoolVar(&c.local, "local", false, "allow a backend that excludes nobody outside this process")
	flag.IntVar(&c.ids, "n", 1024, "how many worker ids there are, at most 1024")
	flag.DurationVar(&c.every, "every", 500*time.Millisecond, "time from one id to the next")
	flag.DurationVar(&c.skew, "skew", time.Second, "how far apart the clocks of two machines may be")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, c); err != nil {
		fmt.Fprintln(os.Stderr, "workerid:", err)
		os.Exit(1)
	}
}

// run issues ids until ctx ends. When the worker id is lost, it leases another.
func run(ctx context.Context, out io.Writer, c config) error {
	backend, end, err := open(c.url)
	if err != nil {
		return err
	}
	defer end()
	var opts []mutex.Option
	if !c.local {
		opts = append(opts, mutex.RequireShared())
	}
	locks, err := mutex.New(backend, opts...)
	if err != nil {
		return err
	}
	defer locks.Close(ctx)
	for {
		g, err := take(ctx, locks, c.ids, c.skew)
		if err == nil {
			fmt.Fprintln(out, "worker", g.worker)
			err = g.issue(ctx, out, c.every)
			_ = g.h.Close() // if it fails, the lease runs out
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, lease.ErrLost):
			fmt.Fprintln(out, err)
		default:
			return err
		}
	}
}

// issue prints an id at a time until ctx ends or the worker id is lost.
func (g *generator) issue(ctx context.Context, out io.Writer, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		id, err := g.next()
		if err != nil {
			return err
		}
		fmt.Fprintln(out, "id", id)
		select {
		case <-tick.C:
		case <-g.h.Lost():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// open returns the Redis at url, or a backend in memory if url is empty.
func open(url string) (lease.Backend, func(), error) {
	if url == "" {
		return memory.New(), func() {}, nil
	}
	opts, err := goredis.ParseURL(url)
	if err != nil {
		return nil, nil, err
	}
	opts.ContextTimeoutEnabled = true // deadlines hold while a reply is awaited
	client := goredis.NewClient(opts)
	backend, err := redis.New(client)
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	return backend, func() { _, _ = backend.Close(), client.Close() }, nil
}

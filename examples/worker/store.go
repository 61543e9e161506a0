package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	goredis "github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/backends/memory"
	"github.com/leasehold-go/leasehold/backends/redis"
	"github.com/leasehold-go/leasehold/lease"
)

// store is where the lease is kept.
type store struct {
	name    string
	connect func() (lease.Queuer, error) // for one worker
	close   func()
}

// openStore opens the Redis at url, or makes a store in memory if url is empty.
func openStore(ctx context.Context, url string) (*store, error) {
	if url == "" {
		b := memory.New()
		return &store{
			name:    "memory",
			connect: func() (lease.Queuer, error) { return b, nil },
			close:   func() {},
		}, nil
	}
	opts, err := goredis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	opts.ContextTimeoutEnabled = true // deadlines hold while a reply is awaited
	var opened []io.Closer
	st := &store{name: "Redis at " + opts.Addr}
	st.close = func() { // the last first: a backend before its client
		for _, c := range slices.Backward(opened) {
			_ = c.Close()
		}
	}
	st.connect = func() (lease.Queuer, error) {
		client := goredis.NewClient(opts)
		opened = append(opened, client)
		b, err := redis.New(client)
		if err != nil {
			return nil, err
		}
		opened = append(opened, b)
		if err := client.Ping(ctx).Err(); err != nil {
			return nil, fmt.Errorf("redis at %s: %w", opts.Addr, err)
		}
		return b, nil
	}
	return st, nil
}

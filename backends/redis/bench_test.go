package redis_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/backends/redis"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/lease"
)

// BenchmarkAcquireRelease is an uncontended acquire and release of one name, from one goroutine and from several with a name each.
func BenchmarkAcquireRelease(b *testing.B) {
	for _, parallel := range []int{1, 16, 64, 256} {
		b.Run(strconv.Itoa(parallel), func(b *testing.B) {
			backend, _ := open(b)
			perWorker(b, parallel, func(ctx context.Context, worker string) error {
				g, err := backend.Acquire(ctx, lease.Request{Name: worker, Owner: worker, TTL: 30 * time.Second})
				if err != nil {
					return err
				}
				return backend.Release(ctx, lease.Claim{Name: worker, Owner: worker, Token: g.Token})
			})
		})
	}
}

// BenchmarkFloor is the least that a lock in Redis can do: SET NX PX, and compare and delete.
func BenchmarkFloor(b *testing.B) {
	for _, parallel := range []int{1, 16, 64, 256} {
		b.Run(strconv.Itoa(parallel), func(b *testing.B) {
			client := redistest.Shared(b).Client()
			compareAndDelete := goredis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
			perWorker(b, parallel, func(ctx context.Context, worker string) error {
				if err := client.SetArgs(ctx, "floor:"+worker, worker, goredis.SetArgs{Mode: "NX", TTL: 30 * time.Second}).Err(); err != nil {
					return err
				}
				return compareAndDelete.Run(ctx, client, []string{"floor:" + worker}, worker).Err()
			})
		})
	}
}

// BenchmarkHandOff is one turn of many who want the same name: queue, be handed the lease, release.
func BenchmarkHandOff(b *testing.B) {
	for _, processes := range []int{1, 4} {
		b.Run(strconv.Itoa(processes)+"x4", func(b *testing.B) {
			first, client := open(b)
			backends := []*redis.Backend{first}
			for len(backends) < processes {
				backends = append(backends, on(b, client, redis.WithPrefix(prefixOf(first))))
			}
			var next atomic.Int64
			perWorker(b, 4*processes, func(ctx context.Context, worker string) error {
				n := next.Add(1)
				backend, owner := backends[n%int64(processes)], strconv.FormatInt(n, 10)
				g, err := backend.Wait(ctx, lease.Request{Name: "n", Owner: owner, TTL: 30 * time.Second}, nil)
				if err != nil {
					return err
				}
				return backend.Release(ctx, lease.Claim{Name: "n", Owner: owner, Token: g.Token})
			})
		})
	}
}

// perWorker runs pair b.N times in all, on parallel goroutines.
func perWorker(b *testing.B, parallel int, pair func(ctx context.Context, worker string) error) {
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	run := b.Name() + strconv.Itoa(b.N)
	if err := pair(ctx, run); err != nil { // loads the scripts
		b.Fatal(err)
	}
	b.ReportAllocs()
	if parallel == 1 {
		for b.Loop() {
			if err := pair(ctx, run); err != nil {
				b.Fatal(err)
			}
		}
		return
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	done := make(chan error, parallel)
	b.ResetTimer()
	for i := range parallel {
		go func() {
			worker := run + "/" + strconv.Itoa(i)
			var err error
			for err == nil && left.Add(-1) >= 0 {
				err = pair(ctx, worker)
			}
			done <- err
		}()
	}
	for range parallel {
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}

// open returns a backend on the shared server with a prefix of its own, and its client.
func open(t testing.TB, opts ...redis.Option) (*redis.Backend, *goredis.Client) {
	t.Helper()
	server := redistest.Shared(t)
	client := server.Client()
	return on(t, client, append([]redis.Option{redis.WithPrefix(server.Prefix())}, opts...)...), client
}

// on returns a backend on client, closed before the client is.
func on(t testing.TB, client goredis.UniversalClient, opts ...redis.Option) *redis.Backend {
	t.Helper()
	backend, err := redis.New(client, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = backend.Close() })
	return backend
}

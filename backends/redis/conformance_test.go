package redis_test

import (
	"context"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/backends/redis"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/lease/leasetest"
)

// The conformance kit, on a server of its own because some cases flush it.
func TestConformance(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		t.Run(map[int]string{2: "RESP2", 3: "RESP3"}[protocol], func(t *testing.T) {
			server := redistest.Start(t)
			client := server.Client(func(o *goredis.Options) { o.Protocol = protocol })
			open := func(t testing.TB) lease.Backend {
				b, err := redis.New(client, redis.WithPrefix("kit:"))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = b.Close() })
				return b
			}
			ctx := context.Background()
			leasetest.Run(t,
				func(t *testing.T) lease.Backend { return open(t) },
				leasetest.WithDelete(func(t testing.TB, _ lease.Backend, name string) {
					// Names of the kit have no bytes that are escaped in keys when it deletes.
					if n, err := client.Del(ctx, "kit:{"+name+"}:l").Result(); n != 1 || err != nil {
						t.Fatalf("deleted %d records of %q: %v", n, name, err)
					}
				}),
				leasetest.WithForget(func(t testing.TB, _ lease.Backend) {
					if err := client.FlushAll(ctx).Err(); err != nil {
						t.Fatal(err)
					}
				}),
				leasetest.WithSecond(func(t testing.TB, _ lease.Backend) lease.Backend { return open(t) }),
			)
		})
	}
}

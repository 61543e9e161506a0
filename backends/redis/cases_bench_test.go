package redis_test

import (
	"context"
	"strconv"
	"testing"
)

// BenchmarkLockRelease is BenchmarkAcquireRelease as users have it, supervision included.
func BenchmarkLockRelease(b *testing.B) {
	for _, parallel := range []int{1, 16, 64, 256} {
		b.Run(strconv.Itoa(parallel), func(b *testing.B) {
			backend, _ := open(b)
			locks := lockerOn(b, backend)
			perWorker(b, parallel, func(ctx context.Context, worker string) error {
				h, err := locks.Lock(ctx, worker)
				if err != nil {
					return err
				}
				return h.Release(ctx)
			})
		})
	}
}

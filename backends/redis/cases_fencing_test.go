package redis_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/mutex"
)

// Leases end in every way there is, while others want them.
func TestC52_TokensRiseInGrantOrder(t *testing.T) {
	const calls, names, workers = 10_000, 5, 5
	ctx := t.Context()
	server := redistest.Start(t)
	admin := server.Client()
	var last [names]lease.Token
	var mu sync.Mutex
	var left, won atomic.Int64
	left.Store(calls)

	// work makes one call, and returns what is wrong.
	work := func(p *peer) error {
		n := rand.N(names)
		name := fmt.Sprint("n", n)
		try := rand.N(3) == 0
		var h *lease.Handle
		var err error
		if try {
			h, err = p.TryLock(ctx, name)
		} else {
			h, err = p.Lock(ctx, name)
		}
		if try && errors.Is(err, lease.ErrHeld) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		// Whoever comes next is granted the name only after what follows here: so this is the order of grants.
		won.Add(1)
		token := h.Token()
		mu.Lock()
		before := last[n]
		last[n] = token
		mu.Unlock()
		if token <= before || token < 1 {
			return fmt.Errorf("%s: token %d after %d", name, token, before)
		}
		forgotten := false
		switch rand.N(10) {
		case 0:
			forgotten = true
			err = admin.Del(ctx, p.backend.RecordKey(name)).Err()
		case 1:
			forgotten = true
			err = admin.PExpire(ctx, p.backend.RecordKey(name), time.Millisecond).Err()
		case 2, 3:
			err = h.Renew(ctx)
		case 4:
			err = h.RenewFor(ctx, time.Minute)
		}
		if err != nil {
			return err
		}
		if h.Token() != token {
			return fmt.Errorf("%s: token %d became %d", name, token, h.Token())
		}
		if err := h.Release(ctx); err != nil && !forgotten {
			return fmt.Errorf("release %s: %w", name, err)
		}
		if h.Token() != token {
			return fmt.Errorf("%s: token %d became %d", name, token, h.Token())
		}
		return nil
	}
	var wg sync.WaitGroup
	for range 3 {
		p := near(t, server, "c52:", mutex.WithTTL(30*time.Second))
		for range workers {
			wg.Go(func() {
				for left.Add(-1) >= 0 {
					if err := work(p); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	t.Logf("%d grants in %d calls", won.Load(), calls)
}

// The last token of a name lives for a day. What comes after that is simulated by taking the key away.
func TestC53_TokensNeedNoMemory(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := redistest.Start(t)
	a := near(t, server, "c53:")
	t.Run("OneName", func(t *testing.T) {
		key := a.backend.Keys("n")[1]
		first := a.lock("n")
		a.unlock(first)
		if left := a.client.PTTL(ctx, key).Val(); left <= 0 || left > 24*time.Hour+mutex.DefaultTTL {
			t.Errorf("the last token is kept for %v", left)
		}
		a.client.PExpire(ctx, key, time.Millisecond)
		eventually(t, func() bool { return a.client.Exists(ctx, key).Val() == 0 })
		second := a.lock("n")
		if second.Token() <= first.Token() {
			t.Errorf("token %d after %d", second.Token(), first.Token())
		}
		a.unlock(second)
	})
	t.Run("ManyNames", func(t *testing.T) {
		const names, together = 10_000, 64
		var last [names]lease.Token
		each := func(check func(i int, token lease.Token)) {
			var wg sync.WaitGroup
			var next atomic.Int64
			for range together {
				wg.Go(func() {
					for i := next.Add(1) - 1; i < names; i = next.Add(1) - 1 {
						h, err := a.TryLock(ctx, fmt.Sprint("many:", i))
						if err != nil {
							t.Error(err)
							return
						}
						check(int(i), h.Token())
						if err := h.Close(); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		}
		server.FlushAll(ctx)
		each(func(i int, token lease.Token) { last[i] = token })
		if n := a.client.DBSize(ctx).Val(); n > names {
			t.Errorf("%d keys for %d names", n, names)
		}
		keys := a.client.Keys(ctx, "*").Val()
		pipe := a.client.Pipeline()
		for _, key := range keys {
			pipe.PTTL(ctx, key)
			pipe.PExpire(ctx, key, time.Millisecond)
		}
		replies, err := pipe.Exec(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(replies); i += 2 {
			if left := durationOf(replies[i]); left <= 0 || left > 24*time.Hour+mutex.DefaultTTL {
				t.Fatalf("%s is kept for %v", keys[i/2], left)
			}
		}
		eventually(t, func() bool { return a.client.DBSize(ctx).Val() == 0 })
		each(func(i int, token lease.Token) {
			if token <= last[i] {
				t.Errorf("name %d: token %d after %d", i, token, last[i])
			}
		})
	})
}

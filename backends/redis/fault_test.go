package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/backends/redis"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/lease"
)

// The connection breaks after the server has granted the lease and before it says so. The client sends the request again, and the
// winner must not lose to itself.
func TestAcquire_LostReply(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	direct := server.Client()
	t.Run("RetriedByTheClient", func(t *testing.T) {
		b := on(t, server.Client(proxy.Via))
		for i := range 50 {
			name := fmt.Sprint("n", i)
			cut := proxy.CutAfterRequest("{" + name + "}:l")
			g, err := b.Acquire(t.Context(), request(name, "o"))
			if err != nil {
				t.Fatal(err)
			}
			<-cut
			record := direct.Get(t.Context(), b.RecordKey(name)).Val()
			if want := fmt.Sprintf("%d o ", g.Token); !strings.HasPrefix(record, want) {
				t.Fatalf("record %q, want %q…", record, want)
			}
			if left := direct.PTTL(t.Context(), b.RecordKey(name)).Val(); left <= 0 || left > ttl {
				t.Fatalf("record lives for %v", left)
			}
		}
	})
	t.Run("NotRetried", func(t *testing.T) {
		b := on(t, server.Client(proxy.Via, func(o *goredis.Options) { o.MaxRetries = -1 }))
		proxy.CutAfterRequest("{once}:l")
		_, err := b.Acquire(t.Context(), request("once", "o"))
		if err == nil || errors.Is(err, lease.ErrHeld) {
			t.Fatalf("got %v, want an unknown outcome", err)
		}
		if err := b.Release(t.Context(), lease.Claim{Name: "once", Owner: "o"}); err != nil {
			t.Fatal(err)
		}
		if direct.Exists(t.Context(), b.RecordKey("once")).Val() != 0 {
			t.Fatal("withdrawn, but there")
		}
	})
}

// A release is never sent twice: the repetition would find the next holder, or nobody, and call the release a failure.
func TestRelease_IsSentOnce(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	b := on(t, server.Client(proxy.Via))
	release(t, b, acquire(t, b, "warm", "o"))
	held := acquire(t, b, "n", "o")
	w := wait(t, t.Context(), b, request("n", "w"))
	server.ResetStats(t.Context())
	proxy.CutAfterRequest(fmt.Sprint(held.Token, " o "))
	err := b.Release(t.Context(), held)
	if err == nil || errors.Is(err, lease.ErrNotOwner) {
		t.Fatalf("got %v, want an unknown outcome", err)
	}
	if n := server.CommandStats(t.Context())["del"]; n != 1 {
		t.Errorf("released %d times", n)
	}
	// The grant rode on the lost reply: the waiter queues again and finds it.
	release(t, b, w.granted(t, "n"))
}

// In a pipeline with a release, which keeps the client from resending any of it, the others are sent again all the same.
func TestCommitter_MixedGroupLosesItsReply(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	b := on(t, server.Client(proxy.Via, func(o *goredis.Options) { o.PoolSize = 1 }))
	const n = 40
	var held []lease.Claim
	for i := range n {
		held = append(held, acquire(t, b, fmt.Sprint("r", i), "o"))
	}
	for range 2 {
		proxy.CutAfterRequest("evalsha")
	}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if _, err := b.Acquire(t.Context(), request(fmt.Sprint("a", i), "o")); err != nil {
				t.Errorf("acquire: %v", err)
			}
		})
		wg.Go(func() {
			if err := b.Release(t.Context(), held[i]); errors.Is(err, lease.ErrNotOwner) {
				t.Errorf("release: %v", err)
			}
		})
	}
	wg.Wait()
}

// The script cache may be emptied at any time, and scripts travel in pipelines too.
func TestBackend_ScriptCacheEmptied(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	b := on(t, client)
	flush := func() { client.ScriptFlush(t.Context()) }
	flush()
	claim := acquire(t, b, "n", "o")
	flush()
	if _, err := b.Renew(t.Context(), claim, ttl); err != nil {
		t.Fatal(err)
	}
	flush()
	w := wait(t, t.Context(), b, request("n", "w"))
	flush()
	release(t, b, claim)
	flush()
	release(t, b, w.granted(t, "n"))
	flush()
	if err := b.Release(t.Context(), lease.Claim{Name: "n", Owner: "w"}); err != nil {
		t.Fatal(err)
	}
	flush()
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() { release(t, b, acquire(t, b, fmt.Sprint("m", i), "o")) })
	}
	wg.Wait()
}

func TestBackend_ForeignKeys(t *testing.T) {
	b, client := open(t)
	ctx := t.Context()
	t.Run("String", func(t *testing.T) {
		key := b.RecordKey("string")
		for _, value := range []string{"anything", "", "123", "123 o", "-5 o - x"} {
			client.Set(ctx, key, value, 0)
			_, err := b.Acquire(ctx, request("string", "o"))
			wantErr(t, err, lease.ErrHeld)
			wantErr(t, b.Release(ctx, lease.Claim{Name: "string", Owner: "o", Token: 123}), lease.ErrTaken)
			if err := b.Release(ctx, lease.Claim{Name: "string", Owner: "o"}); err != nil {
				t.Fatal(err)
			}
			if got := client.Get(ctx, key).Val(); got != value || client.PTTL(ctx, key).Val() != -1 {
				t.Fatalf("key is %q, was %q", got, value)
			}
		}
	})
	for kind, create := range map[string]func(key string){
		"Hash": func(key string) { client.HSet(ctx, key, "f", "v") },
		"List": func(key string) { client.RPush(ctx, key, "v") },
	} {
		for i, suffix := range []string{"Record", "Token"} {
			t.Run(kind+suffix, func(t *testing.T) {
				name := kind + suffix
				key := b.Keys(name)[i]
				create(key)
				before := client.Dump(ctx, key).Val()
				_, err := b.Acquire(ctx, request(name, "o"))
				wantErr(t, err, lease.ErrPermanent)
				_, err = b.Wait(ctx, request(name, "o"), nil)
				wantErr(t, err, lease.ErrPermanent)
				if !strings.Contains(err.Error(), "WRONGTYPE") || errors.Is(err, lease.ErrHeld) {
					t.Fatalf("got %v", err)
				}
				if client.Dump(ctx, key).Val() != before {
					t.Fatal("the key was changed")
				}
			})
		}
	}
	client.Set(ctx, "bare", "application", 0)
	acquire(t, b, "bare", "o")
	if client.Get(ctx, "bare").Val() != "application" {
		t.Fatal("the application's key was changed")
	}
}

// What a user may not do is said at once; what the ACL rule in the package documentation allows is enough.
func TestBackend_ACL(t *testing.T) {
	server := redistest.Start(t)
	admin := server.Client()
	ctx := t.Context()
	for _, user := range [][]any{
		{"noscripts", "on", ">pw", "~*", "&*", "+@all", "-eval", "-evalsha"},
		{"nokeys", "on", ">pw", "~other:*", "&*", "+@all"},
		{"nochannel", "on", ">pw", "~leasehold:*", "resetchannels", "+@all"},
		{"nodel", "on", ">pw", "~*", "&*", "+@all", "-set"},
		{"least", "on", ">pw", "~leasehold:*", "&leasehold:inbox:*", "-@all", "+hello", "+ping", "+eval", "+evalsha", "+subscribe", "+publish",
			"+time", "+get", "+mget", "+set", "+del", "+exists", "+pexpire", "+pttl", "+zadd", "+zrem", "+zscore", "+zpopmin", "+zrevrange",
			"+zremrangebyscore", "+hset", "+hget", "+hdel"},
	} {
		if err := admin.Do(ctx, append([]any{"acl", "setuser"}, user...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	as := func(t *testing.T, user string) *redis.Backend {
		return on(t, server.Client(func(o *goredis.Options) { o.Username, o.Password = user, "pw" }))
	}
	for _, user := range []string{"noscripts", "nokeys", "nodel", "unknown"} {
		t.Run(user, func(t *testing.T) {
			b := as(t, user)
			_, err := b.Wait(bounded(t, 10*time.Second), request("n", "o"), nil)
			wantErr(t, err, lease.ErrPermanent)
			if errors.Is(err, lease.ErrHeld) {
				t.Fatalf("got %v", err)
			}
		})
	}
	t.Run("least", func(t *testing.T) {
		b := as(t, "least")
		claim := acquire(t, b, "n", "o")
		w := wait(t, ctx, b, request("n", "w"))
		eventually(t, func() bool { return admin.PubSubNumSub(ctx, b.Channel()).Val()[b.Channel()] == 1 })
		if _, err := b.Renew(ctx, claim, ttl); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1100 * time.Millisecond) // a poll
		release(t, b, claim)
		release(t, b, w.granted(t, "n"))
		if err := b.Release(ctx, lease.Claim{Name: "n", Owner: "w"}); err != nil {
			t.Fatal(err)
		}
		for _, entry := range admin.Do(ctx, "acl", "log").Val().([]any) {
			if text := fmt.Sprint(entry); strings.Contains(text, "least") {
				t.Errorf("refused: %v", text)
			}
		}
	})
	t.Run("nochannel", func(t *testing.T) {
		other := on(t, admin)
		claim := acquire(t, other, "c", "o")
		b := as(t, "nochannel")
		_, err := b.Wait(bounded(t, 10*time.Second), request("c", "w"), nil)
		wantErr(t, err, lease.ErrPermanent)
		eventually(t, b.Quiet) // it does not try again and again
		release(t, other, claim)
	})
}

// A full server costs no held lease: it renews, is released and handed on; what would be new is refused, and not as contention.
func TestBackend_FullServer(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	b := on(t, client)
	ctx := t.Context()
	claim := acquire(t, b, "n", "o")
	w1 := wait(t, ctx, b, request("n", "w1"))
	w2 := wait(t, ctx, b, request("n", "w2"))
	client.ConfigSet(ctx, "maxmemory-policy", "noeviction")
	client.ConfigSet(ctx, "maxmemory", "1")
	_, err := b.Acquire(ctx, request("m", "o"))
	if err == nil || errors.Is(err, lease.ErrHeld) || errors.Is(err, lease.ErrPermanent) || !goredis.IsOOMError(err) {
		t.Fatalf("got %v, want OOM", err)
	}
	if _, err := b.Renew(ctx, claim, ttl); err != nil {
		t.Fatalf("renew: %v", err)
	}
	time.Sleep(1100 * time.Millisecond) // polls work too
	release(t, b, claim)
	claim = w1.granted(t, "n")
	if _, err := b.Renew(ctx, claim, ttl); err != nil {
		t.Fatalf("renew: %v", err)
	}
	client.Del(ctx, b.RecordKey("n")) // the holder dies: a poll hands on
	release(t, b, w2.granted(t, "n"))
}

// Without an answer every call ends with its ctx, by deadline and by cancellation, though the client by default looks at neither
// while it reads.
func TestBackend_BlackHole(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	b := on(t, server.Client(proxy.Via, func(o *goredis.Options) { o.ReadTimeout, o.DialTimeout = time.Second, time.Second }))
	claim := acquire(t, b, "n", "o")
	proxy.BlackHole(true)
	calls := map[string]func(context.Context) error{
		"Acquire": func(ctx context.Context) error { _, err := b.Acquire(ctx, request("a", "o")); return err },
		"Wait":    func(ctx context.Context) error { _, err := b.Wait(ctx, request("w", "o"), nil); return err },
		"Renew":   func(ctx context.Context) error { _, err := b.Renew(ctx, claim, ttl); return err },
		"Release": func(ctx context.Context) error { return b.Release(ctx, claim) },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			begun := time.Now()
			err := call(bounded(t, 200*time.Millisecond))
			wantErr(t, err, context.DeadlineExceeded)
			if errors.Is(err, lease.ErrHeld) || errors.Is(err, lease.ErrPermanent) {
				t.Errorf("got %v", err)
			}
			cause := errors.New("the caller's reason")
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(100*time.Millisecond, func() { cancel(cause) })
			wantErr(t, call(ctx), context.Canceled, cause)
			if took := time.Since(begun); took > 900*time.Millisecond {
				t.Errorf("took %v", took)
			}
		})
	}
	// The bound on one request is not the caller's deadline.
	_, err := b.Acquire(t.Context(), lease.Request{Name: "a", Owner: "o", TTL: 300 * time.Millisecond})
	if err == nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, lease.ErrHeld) {
		t.Errorf("got %v, want no reply", err)
	}
	proxy.BlackHole(false)
	eventually(t, func() bool {
		_, err := b.Renew(bounded(t, time.Second), claim, ttl)
		return err == nil
	})
	eventually(t, b.Quiet)
}

// Some connections being dead does not hold up those who could use another.
func TestCommitter_DeadConnectionsDelayNobodyForLong(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	b := on(t, server.Client(proxy.Via, func(o *goredis.Options) { o.ReadTimeout = 3 * time.Second }))
	release(t, b, acquire(t, b, "warm", "o"))
	proxy.DropReplies(redis.Lanes) // each on a connection of its own, which is silent from then on
	var wg sync.WaitGroup
	for i := range redis.Lanes {
		wg.Go(func() { _, _ = b.Acquire(bounded(t, 5*time.Second), request(fmt.Sprint("stuck", i), "o")) })
		time.Sleep(10 * time.Millisecond)
	}
	begun := time.Now()
	if _, err := b.Acquire(t.Context(), request("n", "o")); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 2*time.Second {
		t.Fatalf("took %v", took)
	}
	wg.Wait()
}

// Many at once are each told their own result.
func TestCommitter_EachGetsItsOwn(t *testing.T) {
	b, _ := open(t)
	const n, rounds = 500, 10
	var wg sync.WaitGroup
	var mu sync.Mutex
	winners := make(map[string]int)
	for i := range n {
		wg.Go(func() {
			own, owner := fmt.Sprint("own", i), fmt.Sprint("o", i)
			for range rounds {
				claim := acquire(t, b, own, owner)
				if g, err := b.Renew(t.Context(), claim, time.Minute); err != nil || g.Token != claim.Token {
					t.Errorf("renew %v: %+v, %v", claim, g, err)
				}
				release(t, b, claim)
			}
			shared := fmt.Sprint("shared", i%50)
			switch _, err := b.Acquire(t.Context(), request(shared, owner)); {
			case err == nil:
				mu.Lock()
				winners[shared]++
				mu.Unlock()
			case !errors.Is(err, lease.ErrHeld):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for name, won := range winners {
		if won != 1 {
			t.Errorf("%s: %d winners", name, won)
		}
	}
	if len(winners) != 50 {
		t.Errorf("%d names won", len(winners))
	}
}

// What is cancelled before it could be sent is not sent.
func TestCommitter_CancelledIsNotSent(t *testing.T) {
	b, client := open(t)
	var counter redistest.Counter
	client.AddHook(&counter)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Acquire(ctx, request("n", "o"))
	wantErr(t, err, context.Canceled)
	_, err = b.Wait(ctx, request("n", "o"), nil)
	wantErr(t, err, context.Canceled)
	if counter.Total() != 0 {
		t.Fatal("something was sent")
	}
}

package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/backends/redis"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/lease"
)

const ttl = 30 * time.Second

func request(name, owner string) lease.Request {
	return lease.Request{Name: name, Owner: owner, Label: "label of " + owner, TTL: ttl}
}

// acquire takes name for owner and returns the claim.
func acquire(t testing.TB, b *redis.Backend, name, owner string) lease.Claim {
	t.Helper()
	g, err := b.Acquire(t.Context(), request(name, owner))
	if err != nil {
		t.Fatalf("acquire: %v", err)
	}
	return lease.Claim{Name: name, Owner: owner, Token: g.Token}
}

func release(t testing.TB, b *redis.Backend, c lease.Claim) {
	t.Helper()
	if err := b.Release(t.Context(), c); err != nil {
		t.Fatalf("release: %v", err)
	}
}

// wantErr fails the test unless err matches all of want.
func wantErr(t testing.TB, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Fatalf("got error %v, want one that matches %v", err, w)
		}
	}
}

func TestNew_ReportsAllViolations(t *testing.T) {
	var typedNil *goredis.Client
	_, err := redis.New(typedNil, redis.WithPrefix("a{b"), redis.WithKeyFunc(nil), redis.WithClock(nil))
	wantErr(t, err, lease.ErrInvalid)
	for _, option := range []string{"client", "WithPrefix", "WithKeyFunc", "WithClock"} {
		if !strings.Contains(err.Error(), option) {
			t.Errorf("error %q does not name %s", err, option)
		}
	}
	ring := goredis.NewRing(&goredis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	_, err = redis.New(ring)
	wantErr(t, err, lease.ErrInvalid)
	_, err = redis.New(nil)
	wantErr(t, err, lease.ErrInvalid)
}

// Both protocols decode to different Go types in places.
func TestBackend_LifeOfALease(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			server := redistest.Shared(t)
			client := server.Client(func(o *goredis.Options) { o.Protocol = protocol })
			b := on(t, client, redis.WithPrefix(server.Prefix()))
			ctx := t.Context()

			before := time.Now().Add(-time.Second)
			g, err := b.Acquire(ctx, request("n", "o1"))
			if err != nil {
				t.Fatal(err)
			}
			if g.TTL != ttl || g.ExpiresAt.Before(before.Add(ttl)) || g.ExpiresAt.After(time.Now().Add(ttl+time.Second)) {
				t.Fatalf("got grant %+v", g)
			}
			again, err := b.Acquire(ctx, request("n", "o1"))
			if err != nil || again.Token != g.Token {
				t.Fatalf("repetition: got %+v, %v, want token %v", again, err, g.Token)
			}

			_, err = b.Acquire(ctx, request("n", "o2"))
			wantErr(t, err, lease.ErrHeld)
			var held *lease.HeldError
			if !errors.As(err, &held) || held.Holder.Token != g.Token || held.Holder.Label != "label of o1" ||
				held.Holder.Remaining <= ttl-5*time.Second || held.Holder.Remaining > ttl {
				t.Fatalf("got %+v", held)
			}
			if strings.Contains(err.Error(), "o1 ") {
				t.Fatal("the owner id leaks")
			}

			claim := lease.Claim{Name: "n", Owner: "o1", Token: g.Token}
			r, err := b.Renew(ctx, claim, time.Minute)
			if err != nil || r.Token != g.Token || r.TTL != time.Minute {
				t.Fatalf("renew: got %+v, %v", r, err)
			}
			if left := client.PTTL(ctx, b.RecordKey("n")).Val(); left <= 55*time.Second || left > time.Minute {
				t.Fatalf("record lives for %v", left)
			}
			release(t, b, claim)
			release(t, b, claim) // nobody had it since
			next := acquire(t, b, "n", "o2")
			if next.Token <= g.Token {
				t.Fatalf("token %d after %d", next.Token, g.Token)
			}
			wantErr(t, b.Release(ctx, claim), lease.ErrTaken)
			_, err = b.Renew(ctx, claim, ttl)
			wantErr(t, err, lease.ErrTaken)
			release(t, b, next)
			wantErr(t, b.Release(ctx, claim), lease.ErrMissing)
			_, err = b.Renew(ctx, claim, ttl)
			wantErr(t, err, lease.ErrMissing)
		})
	}
}

func TestBackend_OwnersAreComparedWhole(t *testing.T) {
	b, client := open(t)
	claim := acquire(t, b, "n", "job-12")
	before := client.Get(t.Context(), b.RecordKey("n")).Val()
	for _, other := range []lease.Claim{
		{Name: "n", Owner: "job-1", Token: claim.Token},
		{Name: "n", Owner: "job-123", Token: claim.Token},
		{Name: "n", Owner: "job-12", Token: claim.Token - 1},
		{Name: "n", Owner: "job-12", Token: claim.Token / 10},
	} {
		wantErr(t, b.Release(t.Context(), other), lease.ErrTaken)
		_, err := b.Renew(t.Context(), other, time.Hour)
		wantErr(t, err, lease.ErrTaken)
	}
	if err := b.Release(t.Context(), lease.Claim{Name: "n", Owner: "job-1"}); err != nil {
		t.Fatal(err)
	}
	if got := client.Get(t.Context(), b.RecordKey("n")).Val(); got != before {
		t.Fatalf("record is %q, was %q", got, before)
	}
}

func TestBackend_TokensRiseWhateverTheStoreForgets(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	b := on(t, client)
	ctx := t.Context()
	last := acquire(t, b, "n", "o0")
	for i, forget := range []func(){
		func() { release(t, b, last) },
		func() { client.Del(ctx, b.RecordKey("n")) },
		func() { server.FlushAll(ctx) },
		func() { client.PExpire(ctx, b.RecordKey("n"), time.Millisecond); time.Sleep(20 * time.Millisecond) },
		func() { server.Restart() },
		// The server's clock seems to have stepped back by an hour.
		func() {
			release(t, b, last)
			client.Set(ctx, b.Keys("n")[1], uint64(last.Token)+3600_000_000, time.Hour)
			last.Token += 3600_000_000
		},
	} {
		forget()
		next := acquire(t, b, "n", fmt.Sprintf("o%d", i+1))
		if next.Token <= last.Token {
			t.Fatalf("case %d: token %d after %d", i, next.Token, last.Token)
		}
		if next.Token > lease.MaxToken {
			t.Fatalf("token %d", next.Token)
		}
		last = next
	}
	client.Del(ctx, b.RecordKey("n"))
	client.Set(ctx, b.Keys("n")[1], "1e300", time.Hour)
	_, err := b.Acquire(ctx, request("n", "last"))
	wantErr(t, err, lease.ErrPermanent)
}

// Names that break key building elsewhere: braces, escapes, bytes of any kind. All keys of a name share a slot, no two names share a
// key, and every key of the server belongs to a name and expires.
func TestBackend_OddNames(t *testing.T) {
	names := []string{
		"a", "{a}", "{a}b{c}", "}{", "{}", "{}x", "x{", "{{a}}", "user:{42}:{7}", "a b", "a\nb", "a\x00b", "\xff\xfe", "%", "%%", "%7D", "}", "%25",
		"a}:t", "a:l", strings.Repeat("é", 512),
	}
	server := redistest.Start(t, redistest.WithArgs("--cluster-enabled", "yes"))
	cluster := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{server.Addr()}})
	defer cluster.Close()
	direct := server.Client()
	ctx := t.Context()
	if err := direct.Do(ctx, "cluster", "addslotsrange", 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	for direct.ClusterInfo(ctx).Val() == "" || !strings.Contains(direct.ClusterInfo(ctx).Val(), "cluster_state:ok") {
		time.Sleep(20 * time.Millisecond)
	}
	b := on(t, cluster)
	owner := make(map[string]string)
	for _, name := range names {
		slot := int64(-1)
		for _, key := range b.Keys(name) {
			if other, taken := owner[key]; taken {
				t.Errorf("%q and %q share the key %q", name, other, key)
			}
			owner[key] = name
			s := direct.ClusterKeySlot(ctx, key).Val()
			if slot >= 0 && s != slot {
				t.Errorf("%q: keys in different slots", name)
			}
			slot = s
		}
	}
	for _, name := range names {
		claim := acquire(t, b, name, "o")
		if _, err := b.Renew(ctx, claim, ttl); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		got := make(chan lease.Claim)
		go func() {
			g, err := b.Wait(ctx, request(name, "o2"), nil)
			if err != nil {
				t.Errorf("wait %q: %v", name, err)
			}
			got <- lease.Claim{Name: name, Owner: "o2", Token: g.Token}
		}()
		eventually(t, func() bool { return b.Parked(name) == 1 })
		release(t, b, claim)
		release(t, b, <-got)
	}
	for _, key := range direct.Keys(ctx, "*").Val() {
		if _, known := owner[key]; !known {
			t.Errorf("stray key %q", key)
		}
		if direct.PTTL(ctx, key).Val() <= 0 {
			t.Errorf("key %q never expires", key)
		}
	}
	_, err := b.Acquire(ctx, lease.Request{Owner: "o", TTL: ttl})
	wantErr(t, err, lease.ErrInvalid)
}

// Nothing reaches the server for arguments out of bounds; what is in bounds is granted for the milliseconds that were asked for.
func TestBackend_Bounds(t *testing.T) {
	b, client := open(t)
	var counter redistest.Counter
	client.AddHook(&counter)
	for _, bad := range []time.Duration{0, -1, -time.Second, 1, lease.MinTTL - 1, lease.MaxTTL + 1, 1<<63 - 1} {
		_, err := b.Acquire(t.Context(), lease.Request{Name: "n", Owner: "o", TTL: bad})
		wantErr(t, err, lease.ErrInvalid)
		_, err = b.Wait(t.Context(), lease.Request{Name: "n", Owner: "o", TTL: bad}, nil)
		wantErr(t, err, lease.ErrInvalid)
		_, err = b.Renew(t.Context(), lease.Claim{Name: "n", Owner: "o", Token: 1}, bad)
		wantErr(t, err, lease.ErrInvalid)
	}
	for _, owner := range []string{"", "a b", "a\n", strings.Repeat("x", 129)} {
		wantErr(t, b.Release(t.Context(), lease.Claim{Name: "n", Owner: owner}), lease.ErrInvalid)
	}
	if n := counter.Total(); n != 0 {
		t.Fatalf("%d commands were sent", n)
	}
	for i, good := range []time.Duration{500 * time.Millisecond, 1999*time.Millisecond + 500*time.Microsecond, lease.MaxTTL} {
		name := fmt.Sprint("n", i)
		g, err := b.Acquire(t.Context(), lease.Request{Name: name, Owner: "o", TTL: good})
		if err != nil || g.TTL != good.Truncate(time.Millisecond) {
			t.Fatalf("%v: got %+v, %v", good, g, err)
		}
		if left := client.PTTL(t.Context(), b.RecordKey(name)).Val(); left <= 0 || left > g.TTL {
			t.Fatalf("%v: the record lives for %v", good, left)
		}
		if !g.ExpiresAt.After(time.Now()) {
			t.Fatalf("%v: expiry %v", good, g.ExpiresAt)
		}
	}
}

func TestBackend_Withdraw(t *testing.T) {
	b, client := open(t)
	ctx := t.Context()
	if err := b.Release(ctx, lease.Claim{Name: "n", Owner: "o"}); err != nil {
		t.Fatalf("nothing to withdraw: %v", err)
	}
	acquire(t, b, "n", "o")
	if err := b.Release(ctx, lease.Claim{Name: "n", Owner: "other"}); err != nil {
		t.Fatal(err)
	}
	if client.Exists(ctx, b.RecordKey("n")).Val() != 1 {
		t.Fatal("another owner's withdrawal took the lease")
	}
	if err := b.Release(ctx, lease.Claim{Name: "n", Owner: "o"}); err != nil {
		t.Fatal(err)
	}
	if client.Exists(ctx, b.RecordKey("n")).Val() != 0 {
		t.Fatal("the lease is still there")
	}
}

func TestBackend_Closed(t *testing.T) {
	b, client := open(t)
	ctx := t.Context()
	claim := acquire(t, b, "n", "o")
	waiting := make(chan error)
	go func() {
		_, err := b.Wait(ctx, request("n", "o2"), nil)
		waiting <- err
	}()
	eventually(t, func() bool { return b.Parked("n") == 1 })
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	wantErr(t, <-waiting, lease.ErrClosed)
	_, err := b.Acquire(ctx, request("m", "o"))
	wantErr(t, err, lease.ErrClosed)
	_, err = b.Wait(ctx, request("m", "o"), nil)
	wantErr(t, err, lease.ErrClosed)
	_, err = b.Renew(ctx, claim, ttl)
	wantErr(t, err, lease.ErrClosed)
	wantErr(t, b.Release(ctx, claim), lease.ErrClosed)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := client.Ping(ctx).Err(); err != nil {
		t.Fatalf("the client was closed: %v", err)
	}
	if b.Info() != (lease.Info{Name: "redis", TokensSurvive: true}) {
		t.Fatalf("got %+v", b.Info())
	}
}

// eventually waits for what other goroutines or the server bring about soon.
func eventually(t testing.TB, true func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !true(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("did not happen")
		}
	}
}

func bounded(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

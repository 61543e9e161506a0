package redis_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/backends/redis"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/mutex"
)

// noRetries makes the client send nothing twice.
func noRetries(o *goredis.Options) { o.MaxRetries = -1 }

func TestC01_ResendMakesNoWinnerLose(t *testing.T) {
	t.Parallel()
	const repetitions = 200
	ctx := t.Context()
	for name, clientOpts := range map[string][]func(*goredis.Options){"DefaultRetries": nil, "NoRetries": {noRetries}} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			direct := server.Client()
			proxy := redistest.NewProxy(t, server.Addr())
			a := peerOf(t, server, "c01:", append(clientOpts, proxy.Via))
			near(t, server, "c01:").warm()
			for i := range repetitions {
				name := fmt.Sprint("n", i)
				server.ResetStats(ctx)
				cut := proxy.CutAfterRequest(a.backend.RecordKey(name))
				h, err := a.TryLock(ctx, name)
				await(t, "cut", cut, 0)
				a.keep(h)
				if err == nil {
					a.wantRecord(direct, h, mutex.DefaultTTL)
					if n := scripts(ctx, server); n > 2 {
						t.Fatalf("the server ran the acquire %d times", n)
					}
					continue
				}
				wantNot(t, err, lease.ErrHeld, lease.ErrPermanent)
				if len(clientOpts) == 0 {
					t.Fatalf("with retries: %v", err)
				}
				eventually(t, func() bool { return a.record(direct, name) == "" })
			}
		})
	}
}

// The server stands still while the client sends the acquire again and again, and then runs all of them.
func TestC02_AcquireExecutedTwiceIsOneHold(t *testing.T) {
	t.Parallel()
	const ttl, every = 1500 * time.Millisecond, 500 * time.Millisecond
	ctx := t.Context()
	server := redistest.Start(t)
	impatient := func(o *goredis.Options) { o.ReadTimeout = 60 * time.Millisecond }
	a := peerOf(t, server, "c02:", []func(*goredis.Options){impatient}, mutex.WithTTL(ttl))
	b := near(t, server, "c02:", mutex.WithTTL(ttl))
	b.warm()
	admin := server.Client()
	for range 5 {
		if err := admin.ClientPause(ctx, 250*time.Millisecond).Err(); err != nil {
			t.Fatal(err)
		}
		h, err := a.Lock(ctx, "n")
		if err != nil {
			t.Fatal(err)
		}
		a.unlock(h)
		a.wantFree(admin, "n")
		other, err := b.TryLock(ctx, "n")
		if err != nil {
			t.Fatalf("the name is not free after one release: %v", err)
		}
		b.unlock(other)
	}
	server.ResetStats(ctx)
	time.Sleep(3 * every) // nothing may come
	if n := scripts(ctx, server); n != 0 {
		t.Errorf("%d scripts were run after the release", n)
	}
	a.wantFree(admin, "n")
}

func TestC05_NoLeaseWithoutExpiry(t *testing.T) {
	t.Parallel()
	const attempts = 1000
	ctx := t.Context()
	server := redistest.Start(t)
	direct := server.Client()
	near(t, server, "c05:").warm()
	proxy := redistest.NewProxy(t, server.Addr())
	a := peerOf(t, server, "c05:", []func(*goredis.Options){proxy.Via, noRetries})
	granted := 0
	for i := range attempts {
		name := fmt.Sprint("n", i)
		cut := proxy.CutAfterRequest(a.backend.RecordKey(name))
		h, err := a.TryLock(ctx, name)
		await(t, "cut", cut, 0)
		if err == nil {
			granted++
			a.keep(h)
		}
		if left := direct.PTTL(ctx, a.backend.RecordKey(name)).Val(); left == -1 || left == 0 || left > mutex.DefaultTTL {
			t.Fatalf("the record runs for %v", left)
		}
	}
	// Each attempt is one request, and one more gives back what came of it.
	if err := a.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if n := a.sent.Requests(); n > 2*attempts {
		t.Errorf("%d requests for %d attempts, %d of them granted", n, attempts, granted)
	}
	for _, key := range direct.Keys(ctx, "*").Val() {
		if left := direct.PTTL(ctx, key).Val(); left <= 0 && left != -2 {
			t.Errorf("%s never expires", key)
		}
	}
}

func TestC06_TTLs(t *testing.T) {
	a := shared(t)
	ctx := t.Context()
	a.warm()
	for _, ttl := range []time.Duration{0, -1, -time.Second, 1, 999 * time.Microsecond, lease.MinTTL - 1, lease.MaxTTL + 1, 1<<63 - 1} {
		h, err := a.TryLock(ctx, "n", mutex.WithTTL(ttl))
		wantErr(t, err, lease.ErrInvalid)
		if _, err := a.Lock(ctx, "n", mutex.WithTTL(ttl)); h != nil || !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%v: got %v, %v", ttl, h, err)
		}
	}
	if n := a.sent.Total(); n != 0 {
		t.Fatalf("%d commands were sent", n)
	}
	for i, ttl := range []time.Duration{
		500 * time.Millisecond, 800 * time.Millisecond, 1500 * time.Millisecond, 1999*time.Millisecond + 500*time.Microsecond, lease.MaxTTL,
	} {
		whole := ttl.Truncate(time.Millisecond)
		before := time.Now()
		h := a.lock(fmt.Sprint("n", i), mutex.WithTTL(ttl), mutex.WithoutRenewal())
		after := time.Now()
		left := a.client.PTTL(ctx, a.backend.RecordKey(h.Name())).Val()
		elapsed := time.Since(before)
		if left <= 0 || left > whole || left < whole-elapsed-2*time.Millisecond {
			t.Errorf("%v: the record runs for %v after %v", ttl, left, elapsed)
		}
		trust := h.TrustedUntil()
		if trust.Before(lease.TrustEnd(before, whole)) || trust.After(lease.TrustEnd(after, whole)) {
			t.Errorf("%v: trusted for %v after the call", ttl, trust.Sub(after))
		}
		if !h.ExpiresAt().After(time.Now().Add(-elapsed)) {
			t.Errorf("%v: expires at %v", ttl, h.ExpiresAt())
		}
		a.unlock(h)
	}
	// The shortest lease may be over before its grant is here; what matters is that it ends.
	if h, err := a.TryLock(ctx, "shortest", mutex.WithTTL(lease.MinTTL), mutex.WithoutRenewal()); err == nil {
		a.keep(h)
	} else {
		wantNot(t, err, lease.ErrHeld, lease.ErrInvalid)
	}
	eventually(t, func() bool { return a.client.Exists(ctx, a.backend.RecordKey("shortest")).Val() == 0 })
}

func TestC08_KeyIsSomethingElse(t *testing.T) {
	a := shared(t)
	ctx := t.Context()
	a.warm()
	t.Run("String", func(t *testing.T) {
		key := a.backend.RecordKey("string")
		a.client.Set(ctx, key, "somebody's", 0)
		_, err := a.TryLock(ctx, "string")
		wantErr(t, err, lease.ErrHeld)
		_, err = a.Lock(ctx, "string", mutex.WithWait(50*time.Millisecond))
		wantErr(t, err, lease.ErrHeld, context.DeadlineExceeded)
		if v, left := a.client.Get(ctx, key).Val(), a.client.PTTL(ctx, key).Val(); v != "somebody's" || left != -1 {
			t.Errorf("the key is %q and runs for %v", v, left)
		}
	})
	for kind, create := range map[string]func(key string) error{
		"Hash": func(key string) error { return a.client.HSet(ctx, key, "f", "v").Err() },
		"List": func(key string) error { return a.client.RPush(ctx, key, "v").Err() },
	} {
		t.Run(kind, func(t *testing.T) {
			key := a.backend.RecordKey(kind)
			if err := create(key); err != nil {
				t.Fatal(err)
			}
			before := a.client.Dump(ctx, key).Val()
			for call, f := range map[string]func() (*lease.Handle, error){
				"TryLock": func() (*lease.Handle, error) { return a.TryLock(ctx, kind) },
				"Lock":    func() (*lease.Handle, error) { return a.Lock(ctx, kind) }, // waits for ever
			} {
				a.sent.Reset()
				_, err := f()
				wantErr(t, err, lease.ErrPermanent)
				wantNot(t, err, lease.ErrHeld)
				if !strings.Contains(err.Error(), "WRONGTYPE") {
					t.Errorf("%s: error %q does not name the wrong type", call, err)
				}
				if n := a.sent.Requests(); n != 1 {
					t.Errorf("%s: %d requests, want one attempt", call, n)
				}
			}
			if a.client.Dump(ctx, key).Val() != before {
				t.Error("the key was changed")
			}
		})
	}
	t.Run("BareName", func(t *testing.T) {
		name := prefixOf(a.backend) + "bare" // the shared server is others' too
		a.client.HSet(ctx, name, "f", "v")
		before := a.client.Dump(ctx, name).Val()
		a.unlock(a.lock(name))
		if a.client.Dump(ctx, name).Val() != before {
			t.Error("the application's key was changed")
		}
	})
}

// ownerKeeper notes the owner of every request.
type ownerKeeper struct {
	*redis.Backend
	mu     sync.Mutex
	owners map[string]string // by name
}

func (k *ownerKeeper) Acquire(ctx context.Context, req lease.Request) (lease.Grant, error) {
	k.mu.Lock()
	k.owners[req.Name] = req.Owner
	k.mu.Unlock()
	return k.Backend.Acquire(ctx, req)
}

// Distinctness over processes is tested in package mutex; here it is that the store has what the Locker believes.
func TestC09_OwnersAreStoredAsTheyAre(t *testing.T) {
	a := shared(t)
	ctx := t.Context()
	keeper := &ownerKeeper{Backend: a.backend, owners: make(map[string]string)}
	hex := regexp.MustCompile(`^[0-9a-f]{32}$`)
	seen := make(map[string]bool)
	for i := range 8 { // as many Lockers, started together
		l := lockerOn(t, keeper, mutex.WithLabel("a label, with spaces"))
		for n := range 20 {
			name := fmt.Sprintf("n%d-%d", i, n)
			h, err := l.TryLock(ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			owner := keeper.owners[name]
			if !hex.MatchString(owner) || seen[owner] {
				t.Fatalf("owner %q: malformed, or used before", owner)
			}
			seen[owner] = true
			fields := strings.SplitN(a.record(a.client, name), " ", 4)
			if len(fields) != 4 || fields[0] != h.Token().String() || fields[1] != owner || fields[3] != "a label, with spaces" {
				t.Fatalf("stored %q for owner %q", fields, owner)
			}
			a.unlock(h)
		}
	}
}

func TestC10_PermanentRefusalEndsTheWait(t *testing.T) {
	server := redistest.Start(t)
	admin := server.Client()
	ctx := t.Context()
	for _, user := range [][]any{
		{"acl", "setuser", "noeval", "on", ">pw", "~*", "&*", "+@all", "-eval", "-evalsha"},
		{"acl", "setuser", "noscript", "on", ">pw", "~*", "&*", "+@all", "-script"},
	} {
		if err := admin.Do(ctx, user...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	as := func(user string) *peer {
		return peerOf(t, server, "c10:", []func(*goredis.Options){func(o *goredis.Options) { o.Username, o.Password = user, "pw" }})
	}
	a := as("noeval")
	o := await(t, "Lock", a.locking(ctx, "n"), 2*time.Second)
	wantErr(t, o.err, lease.ErrPermanent)
	wantNot(t, o.err, lease.ErrHeld)
	if !goredis.IsPermissionError(o.err) {
		t.Errorf("error %v is not the server's", o.err)
	}
	if n := a.sent.Requests(); n > 2 {
		t.Errorf("%d requests, want at most 2", n)
	}

	b := as("noscript")
	h := b.lock("n")
	w := b.queued(ctx, "n")
	if err := h.Renew(ctx); err != nil {
		t.Error(err)
	}
	b.unlock(h)
	b.unlock(granted(t, w, P).h)
	for command := range server.CommandStats(ctx) {
		if strings.HasPrefix(command, "script") {
			t.Errorf("%s was sent", command)
		}
	}
}

func TestC11_BackendTroubleIsNotContention(t *testing.T) {
	t.Run("OOM", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		admin := server.Client()
		a := near(t, server, "c11:")
		ctx := t.Context()
		admin.ConfigSet(ctx, "maxmemory", "1")
		_, err := a.TryLock(ctx, "n")
		wantNot(t, err, lease.ErrHeld, lease.ErrPermanent)
		if !goredis.IsOOMError(err) {
			t.Fatalf("got %v, want OOM", err)
		}
		got := a.locking(ctx, "n", mutex.WithWait(30*time.Second))
		time.Sleep(300 * time.Millisecond)
		pending(t, got)
		if err := admin.ConfigSet(ctx, "maxmemory", "0").Err(); err != nil {
			t.Fatal(err)
		}
		a.unlock(granted(t, got, P).h)
	})
	t.Run("LOADING", func(t *testing.T) {
		t.Parallel()
		// Loading takes 0.3 ms for each key, and the server answers once in 1024.
		server := redistest.Start(t, redistest.WithPersistence(), redistest.WithArgs("--key-load-delay", "300"))
		ctx := t.Context()
		filler := server.Client(func(o *goredis.Options) { o.ReadTimeout = time.Minute })
		pipe := filler.Pipeline()
		for i := range 6 * 1024 {
			pipe.Set(ctx, fmt.Sprint("filler:", i), "", 0)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
		a := peerOf(t, server, "c11:", []func(*goredis.Options){noRetries})
		b := near(t, server, "c11:")
		b.warm()

		stop := make(chan struct{})
		tries := make(chan error)
		go func() {
			defer close(tries)
			for loading := false; !isClosed(stop); time.Sleep(time.Millisecond) {
				switch h, err := a.TryLock(ctx, "try"); {
				case err == nil:
					_ = h.Close()
				case errors.Is(err, lease.ErrHeld), errors.Is(err, lease.ErrPermanent):
					tries <- err
					return
				case goredis.IsLoadingError(err) && !loading:
					loading = true
					tries <- nil
				}
			}
		}()
		server.Kill()
		got := b.locking(ctx, "n", mutex.WithWait(time.Minute))
		server.Restart()
		if err := await(t, "LOADING", tries, 0); err != nil {
			t.Fatalf("the server was loading: %v", err)
		}
		close(stop)
		if err := await(t, "the end of the tries", tries, 0); err != nil {
			t.Errorf("the server was loading: %v", err)
		}
		b.unlock(granted(t, got, P).h)
	})
}

package redis_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/mutex"
)

// Scripts travel in pipelines too when many come at once; a miss is mended in the same call there as well.
func TestC56_EmptyScriptCacheIsNoticedByNobody(t *testing.T) {
	t.Parallel()
	const every = 100 * time.Millisecond
	ctx := t.Context()
	server := redistest.Start(t)
	direct := server.Client()
	flush := func() {
		if err := direct.ScriptFlush(ctx).Err(); err != nil {
			t.Fatal(err)
		}
	}
	var renewals, failures atomic.Int64
	a := near(t, server, "c56:", mutex.WithRenewEvery(every), mutex.WithObserver(lease.Observer{
		Renewed:      func(lease.Event) { renewals.Add(1) },
		RenewFailing: func(lease.Event) { failures.Add(1) },
	}))
	for i := range 5 {
		flush()
		h := a.lock(fmt.Sprint("n", i))
		flush()
		if err := h.Renew(ctx); err != nil {
			t.Fatal(err)
		}
		flush()
		w := a.queued(ctx, h.Name())
		seen := renewals.Load()
		eventually(t, func() bool { return renewals.Load() > seen }) // by itself
		flush()
		a.unlock(h)
		next := granted(t, w, P).h
		flush()
		a.unlock(next)
	}
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			h, err := a.Lock(ctx, fmt.Sprint("many", i))
			if err != nil {
				t.Error(err)
				return
			}
			if err := h.Renew(ctx); err != nil {
				t.Error(err)
			}
			if err := h.Release(ctx); err != nil {
				t.Error(err)
			}
		})
		if i%50 == 0 {
			flush()
		}
	}
	wg.Wait()
	if n := failures.Load(); n != 0 {
		t.Errorf("%d renewals were taken for failed", n)
	}
}

// That all keys of a name share a slot is tested on a cluster node, in TestBackend_OddNames.
func TestC57_OddNames(t *testing.T) {
	names := []string{
		"a", "{a}", "{a}b{c}", "}{", "{}", "{}x", "x{", "{{a}}", "user:{42}:{7}", " ", "a b", "a\nb", "a\r\nb", "a\x00b", "\x00", "\xff\xfe", "%7D", "*",
		strings.Repeat("é", lease.MaxNameBytes/2),
	}
	ctx := t.Context()
	server := redistest.Start(t)
	direct := server.Client()
	a := near(t, server, "c57:")
	a.warm()
	for _, bad := range []string{"", strings.Repeat("x", lease.MaxNameBytes+1)} {
		_, err := a.TryLock(ctx, bad)
		wantErr(t, err, lease.ErrInvalid)
		_, err = a.Lock(ctx, bad)
		wantErr(t, err, lease.ErrInvalid)
	}
	if n := a.sent.Total(); n != 0 {
		t.Errorf("%d commands were sent", n)
	}
	server.FlushAll(ctx)
	owner := make(map[string]string)
	var held []*lease.Handle
	for _, name := range names { // all at once: two names with one key would exclude each other
		a.sent.Reset()
		h := a.lock(name)
		if h.Name() != name {
			t.Errorf("the handle's name is %q, want %q", h.Name(), name)
		}
		if err := h.Renew(ctx); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		held = append(held, h)
		keys := a.backend.Keys(name)
		for _, key := range keys {
			if other, taken := owner[key]; taken {
				t.Errorf("%q and %q share the key %q", name, other, key)
			}
			owner[key] = name
		}
		for _, c := range a.sent.Commands() {
			if declared, ok := c.Args[2].(int); !ok || c.Key != keys[0] || !slices.Equal(texts(c.Args[3:3+declared]), keys[:declared]) {
				t.Errorf("%q: %q declares %v keys, of %q", name, c.Args[3:], c.Args[2], keys)
			}
		}
	}
	for _, key := range direct.Keys(ctx, "*").Val() {
		if _, known := owner[key]; !known {
			t.Errorf("the key %q was not declared", key)
		}
	}
	for i, h := range held {
		_, err := a.TryLock(ctx, names[i])
		wantErr(t, err, lease.ErrHeld)
		a.unlock(h)
		a.wantFree(direct, names[i])
	}
}

func texts(values []any) []string {
	var s []string
	for _, v := range values {
		s = append(s, fmt.Sprint(v))
	}
	return s
}

// durationOf returns the reply of a PTTL.
func durationOf(cmd goredis.Cmder) time.Duration {
	d, ok := cmd.(*goredis.DurationCmd)
	if !ok {
		return 0
	}
	return d.Val()
}

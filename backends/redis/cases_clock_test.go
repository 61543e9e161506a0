package redis_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/leasehold-go/leasehold/backends/redis"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/mutex"
)

// skewed is the real clock of a machine whose time is set wrong.
type skewed struct {
	clock.Clock
	by time.Duration
}

func (s skewed) Now() time.Time                  { return s.Clock.Now().Add(s.by) }
func (s skewed) Since(t time.Time) time.Duration { return s.Now().Sub(t) }
func (s skewed) Until(t time.Time) time.Duration { return t.Sub(s.Now()) }

func (s skewed) WithDeadline(parent context.Context, d time.Time) (context.Context, context.CancelFunc) {
	return s.Clock.WithDeadline(parent, d.Add(-s.by))
}

func TestC62_WallClocksAreNotCompared(t *testing.T) {
	t.Parallel()
	const ttl = 600 * time.Millisecond
	ctx := t.Context()
	server := redistest.Start(t)
	direct := server.Client()
	machine := func(by time.Duration) *peer {
		clk := skewed{clock.New(), by}
		p := &peer{t: t, sent: new(redistest.Counter), proxy: redistest.NewProxy(t, server.Addr())}
		p.client = server.Client(p.proxy.Via)
		p.client.AddHook(p.sent)
		p.backend = on(t, p.client, redis.WithPrefix("c62:"), redis.WithClock(clk))
		p.Locker = lockerOn(t, p.backend, mutex.WithTTL(ttl), mutex.WithClock(clk))
		t.Cleanup(p.heal)
		return p
	}
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		name := fmt.Sprint("n", ahead)
		a, b := machine(ahead), machine(-ahead)
		h := a.lock(name)
		w := b.queued(ctx, name)
		for renewals, last := 0, h.TrustedUntil(); renewals < 11; renewals++ { // more than 3 TTL
			eventually(t, func() bool { return h.TrustedUntil().After(last) })
			last = h.TrustedUntil()
			_, err := b.TryLock(ctx, name)
			wantErr(t, err, lease.ErrHeld)
			pending(t, w)
		}
		notBefore, notAfter := a.vanish(direct, name)
		next := wantTakeOver(t, w, notBefore, notAfter)
		wantLost(t, h, 0, lease.Expired)
		if next.Token() <= h.Token() {
			t.Errorf("token %d after %d", next.Token(), h.Token())
		}
		if end := next.ExpiresAt(); end.Before(time.Now().Add(-slack)) || end.After(time.Now().Add(ttl+slack)) {
			t.Errorf("expires at %v by the server's clock", end)
		}
		wantNoInstants(t, a.sent.Commands(), time.Now().Add(ahead))
		wantNoInstants(t, b.sent.Commands(), time.Now().Add(-ahead))
		for _, key := range b.backend.Keys(name)[:2] {
			wantNoInstant(t, direct.Get(ctx, key).Val(), time.Now().Add(ahead))
			wantNoInstant(t, direct.Get(ctx, key).Val(), time.Now().Add(-ahead))
		}
		_ = next.Release(ctx) // so short a lease may be over on a busy machine
	}
}

// wantNoInstants fails the test if a command bears an instant near now.
func wantNoInstants(t testing.TB, commands []redistest.Command, now time.Time) {
	t.Helper()
	if len(commands) == 0 {
		t.Error("no commands")
	}
	for _, c := range commands {
		for _, arg := range c.Args {
			wantNoInstant(t, fmt.Sprint(arg), now)
		}
	}
}

// wantNoInstant fails the test if a number in text is an instant near now, in any unit.
func wantNoInstant(t testing.TB, text string, now time.Time) {
	t.Helper()
	for field := range strings.FieldsSeq(text) {
		n, err := strconv.ParseFloat(field, 64)
		if err != nil {
			continue
		}
		for _, unit := range []time.Duration{1, time.Microsecond, time.Millisecond, time.Second} {
			ago := float64(now.UnixNano()) - n*float64(unit)
			if max(ago, -ago) < float64(10*time.Minute) {
				t.Errorf("%q is an instant of a client's clock", text)
			}
		}
	}
}

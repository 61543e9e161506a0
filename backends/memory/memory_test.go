package memory_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold/backends/memory"
	"github.com/leasehold-go/leasehold/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 10 * time.Second

// store is a backend on a clock of its own, in a bubble.
type store struct {
	*testing.T
	*memory.Backend
	ctx context.Context
	clk *clock.Mock
}

func inBubble(t *testing.T, f func(s *store)) {
	synctest.Test(t, func(t *testing.T) {
		clk := clock.NewMock()
		f(&store{T: t, Backend: memory.New(memory.WithClock(clk)), ctx: context.Background(), clk: clk})
	})
}

// acquire takes a free name for owner.
func (s *store) acquire(name, owner string, ttl time.Duration) lease.Claim {
	s.Helper()
	g, err := s.Acquire(s.ctx, lease.Request{Name: name, Owner: owner, TTL: ttl})
	if err != nil {
		s.Fatalf("Acquire(%q, %q): %v", name, owner, err)
	}
	return lease.Claim{Name: name, Owner: owner, Token: g.Token}
}

// A sweep and a renewal at the last instant of a lease: whichever comes first, the lease goes on.
func TestC75_SweepSparesARenewedLease(t *testing.T) {
	rounds := 10_000
	if testing.Short() {
		rounds = 500
	}
	inBubble(t, func(s *store) {
		for round := range rounds {
			a := s.acquire("a", "holder", ttl)
			for i := range 63 { // with a, enough for a sweep
				s.acquire(fmt.Sprint("filler", i), "filler", lease.MinTTL)
			}
			s.clk.Add(ttl - 1)
			var all sync.WaitGroup
			all.Go(func() {
				if _, err := s.Renew(s.ctx, a, ttl); err != nil {
					t.Errorf("round %d: Renew in time: %v", round, err)
				}
			})
			all.Go(func() { s.acquire("new", "sweeper", lease.MinTTL) })
			all.Wait()
			if n := s.Len(); n > 2 {
				t.Errorf("round %d: %d records, want those of a and new: there was no sweep", round, n)
			}
			s.clk.Add(1) // past the first expiry
			s.acquire("another", "sweeper", lease.MinTTL)
			if _, err := s.Renew(s.ctx, a, ttl); err != nil {
				t.Fatalf("round %d: the lease is gone: %v", round, err)
			}
			for _, name := range []string{"a", "new", "another"} {
				s.Expire(name)
			}
		}
	})
}

// The renewal races the expiry itself: it succeeds and the lease lives, or it fails and the lease is gone for good.
func TestC75_RenewalRacesExpiry(t *testing.T) {
	inBubble(t, func(s *store) {
		won := 0
		const rounds = 2000
		for range rounds {
			a := s.acquire("a", "holder", ttl)
			s.clk.Add(ttl - 1)
			var all sync.WaitGroup
			var err error
			all.Go(func() { _, err = s.Renew(s.ctx, a, ttl) })
			all.Go(func() { s.clk.Add(1) })
			all.Wait()
			_, again := s.Renew(s.ctx, a, ttl)
			if (err == nil) != (again == nil) || err != nil && !errors.Is(err, lease.ErrMissing) {
				t.Fatalf("Renew: %v, then %v", err, again)
			}
			if err == nil {
				won++
			}
			s.clk.Add(2 * ttl)
		}
		t.Logf("the renewal came first in %d of %d rounds", won, rounds)
	})
}

// There is no limit at which a held name is evicted.
func TestC75_HeldNamesStay(t *testing.T) {
	inBubble(t, func(s *store) {
		const names = 10_000
		claims := make([]lease.Claim, names)
		for i := range claims {
			claims[i] = s.acquire(fmt.Sprint("name", i), "holder", ttl)
		}
		for _, c := range claims {
			if _, err := s.Renew(s.ctx, c, ttl); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.Len(); n != names {
			t.Errorf("%d records, want %d", n, names)
		}
	})
}

// Names that expire and that nobody asks for again are forgotten.
func TestC74_ExpiredNamesAreSwept(t *testing.T) {
	inBubble(t, func(s *store) {
		most := 0
		for i := range 1000 {
			for j := range 100 {
				s.acquire(fmt.Sprint(i, "-", j), "holder", lease.MinTTL)
			}
			s.clk.Add(lease.MinTTL)
			most = max(most, s.Len())
		}
		if most > 300 {
			t.Errorf("%d records at most, for 100 live names", most)
		}
	})
}

// Many names, held and given back one after the other, leave nothing.
func TestC74_ManyNames(t *testing.T) {
	names := 200_000
	if testing.Short() {
		names = 10_000
	}
	inBubble(t, func(s *store) {
		var last lease.Token
		for i := range names {
			c := s.acquire(fmt.Sprint(i), "holder", ttl)
			if c.Token <= last {
				t.Fatalf("token %d after %d", c.Token, last)
			}
			last = c.Token
			if err := s.Release(s.ctx, c); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.Len(); n != 0 {
			t.Errorf("%d records are left", n)
		}
		if c := s.acquire("0", "again", ttl); c.Token <= last {
			t.Errorf("token %d after %d for a name that was used before", c.Token, last)
		}
	})
}

// A release that comes after the expiry is nil if nobody has held the name since, for the names that became free last.
func TestRelease_LateOne(t *testing.T) {
	const remembered = 1024
	inBubble(t, func(s *store) {
		claims := make([]lease.Claim, remembered+1)
		for i := range claims {
			claims[i] = s.acquire(fmt.Sprint("name", i), "holder", lease.MinTTL)
		}
		s.clk.Add(ttl)
		for _, c := range claims { // in this order they become free
			if _, err := s.Renew(s.ctx, c, ttl); !errors.Is(err, lease.ErrMissing) {
				t.Fatalf("Renew after the end: %v", err)
			}
		}
		for i, c := range claims {
			err := s.Release(s.ctx, c)
			if i == 0 && !errors.Is(err, lease.ErrMissing) {
				t.Errorf("%q was forgotten, and its release is %v, want the safe answer", c.Name, err)
			}
			if i > 0 && err != nil {
				t.Errorf("%q: %v", c.Name, err)
			}
		}
		last := claims[remembered]
		s.acquire(last.Name, "another", ttl)
		if err := s.Release(s.ctx, last); !errors.Is(err, lease.ErrTaken) {
			t.Errorf("somebody holds it: %v", err)
		}
	})
}

func TestExpire(t *testing.T) {
	inBubble(t, func(s *store) {
		if s.Expire("a") {
			t.Error("there was nothing to end")
		}
		a := s.acquire("a", "holder", ttl)
		if !s.Expire("a") || s.Len() != 0 {
			t.Error("the lease goes on")
		}
		if _, err := s.Renew(s.ctx, a, ttl); !errors.Is(err, lease.ErrMissing) {
			t.Errorf("Renew: %v", err)
		}

		a = s.acquire("a", "holder", ttl)
		granted := make(chan lease.Grant)
		go func() {
			g, err := s.Wait(s.ctx, lease.Request{Name: "a", Owner: "waiter", TTL: ttl}, nil)
			if err != nil {
				t.Error(err)
			}
			granted <- g
		}()
		synctest.Wait()
		s.Expire("a")
		if g := <-granted; g.Token <= a.Token || g.TTL != lease.ClaimTTL(ttl) {
			t.Errorf("handed over as %+v after %d", g, a.Token)
		}
		if _, err := s.Renew(s.ctx, a, ttl); !errors.Is(err, lease.ErrTaken) {
			t.Errorf("Renew: %v", err)
		}
	})
}

// Tokens are the clock's microseconds if it runs ahead, and end below 2^53: then nothing is granted any more, and nobody hangs.
func TestTokens_RunOut(t *testing.T) {
	inBubble(t, func(s *store) {
		s.clk.Set(time.UnixMicro(int64(lease.MaxToken)))
		a := s.acquire("a", "holder", ttl)
		if a.Token != lease.MaxToken {
			t.Errorf("token %d", a.Token)
		}
		waited := make(chan error)
		go func() {
			_, err := s.Wait(s.ctx, lease.Request{Name: "a", Owner: "waiter", TTL: ttl}, nil)
			waited <- err
		}()
		synctest.Wait()
		_, err := s.Acquire(s.ctx, lease.Request{Name: "b", Owner: "o", TTL: ttl})
		if !errors.Is(err, lease.ErrPermanent) || s.Len() != 1 {
			t.Errorf("beyond the last token: %v, %d records", err, s.Len())
		}
		if err := s.Release(s.ctx, a); err != nil {
			t.Error(err)
		}
		s.clk.Add(2 * ttl) // the waiter looks again when the holder's time would have been over
		synctest.Wait()
		select {
		case err := <-waited:
			if !errors.Is(err, lease.ErrPermanent) {
				t.Errorf("the waiter: %v", err)
			}
		default:
			t.Error("the waiter still waits")
			s.clk.Set(time.UnixMicro(0))
		}
	})
}

func TestNew_NilClockKeepsTheRealOne(t *testing.T) {
	b := memory.New(memory.WithClock(nil))
	before := time.Now()
	g, err := b.Acquire(context.Background(), lease.Request{Name: "a", Owner: "o", TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	if g.ExpiresAt.Before(before.Add(ttl)) || g.ExpiresAt.After(time.Now().Add(ttl)) {
		t.Errorf("expires at %v", g.ExpiresAt)
	}
	if !b.Info().ProcessLocal || b.Info().Name != "memory" {
		t.Errorf("%+v", b.Info())
	}
}

// Everything at once, for the race detector: at most one owner at any time, and in the end nothing is left.
func TestBackend_Concurrent(t *testing.T) {
	inBubble(t, func(s *store) {
		var all sync.WaitGroup
		var mu sync.Mutex
		holder := ""
		for i := range 50 {
			owner := fmt.Sprint("owner", i)
			all.Go(func() {
				for range 50 {
					g, err := s.Wait(s.ctx, lease.Request{Name: "a", Owner: owner, TTL: ttl}, func(lease.Holder) {})
					if err != nil {
						t.Error(err)
						return
					}
					c := lease.Claim{Name: "a", Owner: owner, Token: g.Token}
					mu.Lock()
					if holder != "" {
						t.Errorf("%s was granted what %s has", owner, holder)
					}
					holder = owner
					mu.Unlock()
					if _, err := s.Renew(s.ctx, c, ttl); err != nil {
						t.Error(err)
					}
					mu.Lock()
					holder = ""
					mu.Unlock()
					if err := s.Release(s.ctx, c); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if n := s.Len(); n != 0 {
			t.Errorf("%d records are left", n)
		}
	})
}

package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/leasehold-go/leasehold/backends/memory"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/lease/leasetest"
	"github.com/leasehold-go/leasehold/mutex"
)

func TestC78_DoOnAHeldNameCallsNothing(t *testing.T) {
	inBubble(t, func(w *world) {
		w.lock("x")
		err := w.locks.Do(w.ctx, "x", func(context.Context, *lease.Handle) error {
			w.Error("fn was called")
			return nil
		}, mutex.WithWait(0))
		wantMatch(w, err, is(lease.ErrHeld), context.DeadlineExceeded, context.Canceled)
	})
}

// What people write who defer before they look at the error.
func TestC78_DeferBeforeTheCheck(t *testing.T) {
	inBubble(t, func(w *world) {
		w.lock("x")
		h, err := w.locks.TryLock(w.ctx, "x")
		//lint:ignore SA5001 what the case is about
		defer h.Close()
		wantMatch(w, err, is(lease.ErrHeld))
		if h != nil || !isClosed(h.Lost()) || h.Valid() {
			w.Error("a call without a lease gives something that looks held")
		}
	})
}

func TestC79_NotReentrant(t *testing.T) {
	inBubble(t, func(w *world) {
		h := w.lock("x")
		token, trust := h.Token(), h.TrustedUntil()
		second := w.locker(w.net)
		calls := len(w.faults.Calls())

		_, err := w.locks.TryLock(w.ctx, "x")
		wantMatch(w, err, is(lease.ErrHeld))
		elsewhere := make(chan error)
		go func() { _, err := w.locks.TryLock(w.ctx, "x"); elsewhere <- err }()
		wantMatch(w, <-elsewhere, is(lease.ErrHeld))
		_, err = second.TryLock(w.ctx, "x")
		wantMatch(w, err, is(lease.ErrHeld))
		if n := len(w.faults.Calls()) - calls; n != 3 {
			w.Errorf("%d attempts, want 3", n)
		}

		got := w.waiting(w.locks, w.ctx, "x", mutex.WithWait(5*time.Second))
		w.until(5*time.Second - 1)
		w.stillWaiting(got)
		if h.Token() != token || h.TrustedUntil() != trust {
			w.Error("the holder's lease has changed")
		}
		w.advance(1)
		r := w.result(got)
		wantMatch(w, r.err, is(lease.ErrHeld, context.DeadlineExceeded))
		if r.at != 5*time.Second {
			w.Errorf("waited %v", r.at)
		}
		w.wantHeld(h)
		if err := second.Close(w.ctx); err != nil {
			w.Error(err)
		}
	})
}

func TestC80_RenewalIntervals(t *testing.T) {
	inBubble(t, func(w *world) {
		for _, c := range []struct{ ttl, every time.Duration }{
			{T, 0}, {T, -1}, {T, -R}, {T, time.Millisecond - 1}, {T, T/2 + 1}, {T, trusted(T)}, {T, T}, {T, T + 1}, {T, 1<<63 - 1},
			{lease.MinTTL, lease.MinTTL/2 + 1},
		} {
			opts := []mutex.Option{mutex.WithTTL(c.ttl), mutex.WithRenewEvery(c.every)}
			l, err := mutex.New(w.store, opts...)
			wantMatch(w, err, is(lease.ErrInvalid))
			var problem *lease.OptionError
			if l != nil || !errors.As(err, &problem) || problem.Option != "WithRenewEvery" || problem.Value != c.every {
				w.Errorf("%+v: %v", c, err)
			}
			_, err = w.locks.Lock(w.ctx, "x", opts...)
			wantMatch(w, err, is(lease.ErrInvalid))
		}
		if n := len(w.faults.Calls()); n != 0 {
			w.Errorf("%d calls", n)
		}
		for _, opts := range [][]mutex.Option{
			{mutex.WithTTL(lease.MinTTL)}, // default interval
			{mutex.WithTTL(lease.MinTTL), mutex.WithRenewEvery(time.Millisecond)},
			{mutex.WithTTL(T), mutex.WithRenewEvery(T / 2)},
			{mutex.WithTTL(lease.MaxTTL)},
		} {
			h := w.lock("x", opts...)
			w.advance(100 * lease.MinTTL)
			w.wantHeld(h)
			w.release(h)
		}
	})
}

func TestC80_DefaultIntervalIsAThird(t *testing.T) {
	for _, ttl := range []time.Duration{lease.MinTTL, 100 * time.Millisecond, T, time.Hour} {
		inBubble(t, func(w *world) {
			w.lock("x", mutex.WithTTL(ttl))
			w.until(ttl/3 - 1)
			w.wantSent(leasetest.OpRenew, "x", 0)
			w.advance(1)
			w.wantSent(leasetest.OpRenew, "x", 1)
		})
	}
}

// optionErrors returns the names of the options that err complains of.
func optionErrors(err error) []string {
	var names []string
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			names = append(names, optionErrors(e)...)
		}
		return names
	}
	var problem *lease.OptionError
	if errors.As(err, &problem) {
		names = append(names, problem.Option)
	}
	return names
}

func TestNew_JoinsAllViolations(t *testing.T) {
	long := string(make([]byte, lease.MaxLabelBytes+1))
	_, err := mutex.New(nil, mutex.WithTTL(1), mutex.WithWait(-1), mutex.WithRenewEvery(0), mutex.WithMaxHold(0), mutex.WithLabel(long),
		mutex.WithClock(nil), mutex.WithRand(nil), nil)
	wantMatch(t, err, is(lease.ErrInvalid))
	got := make(map[string]int)
	for _, name := range optionErrors(err) {
		got[name]++
	}
	for _, want := range []string{"backend", "WithTTL", "WithWait", "WithRenewEvery", "WithMaxHold", "WithLabel", "WithClock", "WithRand", "option"} {
		if got[want] != 1 {
			t.Errorf("%d errors about %s, want 1, in %v", got[want], want, err)
		}
	}
}

func TestNew_Violations(t *testing.T) {
	var typedNil *memory.Backend
	b := memory.New()
	for name, c := range map[string]struct {
		backend lease.Backend
		opts    []mutex.Option
		option  string
	}{
		"NilBackend":               {nil, nil, "backend"},
		"TypedNilBackend":          {typedNil, nil, "backend"},
		"NilOption":                {b, []mutex.Option{nil}, "option"},
		"NilClock":                 {b, []mutex.Option{mutex.WithClock(nil)}, "WithClock"},
		"NilRand":                  {b, []mutex.Option{mutex.WithRand(nil)}, "WithRand"},
		"Contradiction":            {b, []mutex.Option{mutex.WithRenewEvery(time.Second), mutex.WithoutRenewal()}, "WithoutRenewal"},
		"ContradictionTheOtherWay": {b, []mutex.Option{mutex.WithoutRenewal(), mutex.WithRenewEvery(time.Second)}, "WithoutRenewal"},
		"NotShared":                {b, []mutex.Option{mutex.RequireShared()}, "RequireShared"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := mutex.New(c.backend, c.opts...)
			if got := optionErrors(err); l != nil || len(got) != 1 || got[0] != c.option || !errors.Is(err, lease.ErrInvalid) {
				t.Errorf("got %v and %v, want one error about %s", l, err, c.option)
			}
		})
	}
}

func TestLock_JoinsAllViolations(t *testing.T) {
	inBubble(t, func(w *world) {
		for _, call := range []func(context.Context, string, ...mutex.Option) (*lease.Handle, error){w.locks.Lock, w.locks.TryLock} {
			h, err := call(nil, "", mutex.WithTTL(-1), nil)
			if got := fmt.Sprint(optionErrors(err)); h != nil || got != "[name ctx WithTTL option]" {
				w.Errorf("got %v and errors about %v", h, got)
			}
			_, err = call(w.ctx, string(make([]byte, lease.MaxNameBytes+1)))
			wantMatch(w, err, is(lease.ErrInvalid))
			_, err = call(w.ctx, "x", mutex.RequireShared())
			wantMatch(w, err, is(lease.ErrInvalid))
			_, err = call(w.ctx, "x", mutex.WithRenewEvery(time.Second), mutex.WithoutRenewal())
			wantMatch(w, err, is(lease.ErrInvalid))
		}
		if n := len(w.faults.Calls()); n != 0 {
			w.Errorf("%d calls", n)
		}
	})
}

// The longest name, and names of any bytes, are good.
func TestLock_AnyName(t *testing.T) {
	inBubble(t, func(w *world) {
		for _, name := range []string{string(make([]byte, lease.MaxNameBytes)), "a b\n\x00", "{}", "ключ", "\xff\xfe"} {
			if h := w.lock(name); h.Name() != name {
				w.Errorf("Name %q, want %q", h.Name(), name)
			}
		}
	})
}

// A call overrides what New was given, and may undo what would contradict within one list.
func TestOptions_CallOverridesDefaults(t *testing.T) {
	inBubble(t, func(w *world) {
		h := w.lock("renewed", mutex.WithRenewEvery(time.Second))
		w.advance(T)
		w.wantHeld(h)
		h = w.lock("x")
		w.wantLostAt(h, w.now()+trusted(T), lease.Expired)
		_, err := w.locks.Lock(w.ctx, "renewed")
		wantMatch(w, err, is(lease.ErrHeld))
	}, mutex.WithoutRenewal(), mutex.WithWait(0))

	inBubble(t, func(w *world) {
		// An interval from New and a TTL from the call are validated together.
		_, err := w.locks.Lock(w.ctx, "x", mutex.WithTTL(time.Second))
		wantMatch(w, err, is(lease.ErrInvalid))
		h := w.lock("x", mutex.WithTTL(time.Second), mutex.WithoutRenewal())
		w.wantLostAt(h, trusted(time.Second), lease.Expired)
	}, mutex.WithRenewEvery(R))
}

type sharedBackend struct{ lease.Backend }

func (sharedBackend) Info() lease.Info { return lease.Info{Name: "shared"} }

func TestRequireShared_AcceptsASharedBackend(t *testing.T) {
	l, err := mutex.New(sharedBackend{memory.New()}, mutex.RequireShared())
	if err != nil {
		t.Fatal(err)
	}
	h, err := l.TryLock(context.Background(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(h.Close(), l.Close(context.Background())); err != nil {
		t.Error(err)
	}
}

// The defaults are the real clock and no surprises: a Locker without options works.
func TestNew_WithoutOptions(t *testing.T) {
	l, err := mutex.New(memory.New(memory.WithClock(clock.New())))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Do(context.Background(), "x", nothing); err != nil {
		t.Error(err)
	}
	if err := l.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

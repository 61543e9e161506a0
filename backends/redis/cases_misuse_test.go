package redis_test

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/mutex"
)

func TestC79_NotReentrant(t *testing.T) {
	const wait = 300 * time.Millisecond
	ctx := t.Context()
	a := shared(t, mutex.WithTTL(time.Hour))
	second := a.beside(mutex.WithTTL(time.Hour))
	a.warm()
	second.warm()
	h := a.lock("x")
	token, trust := h.Token(), h.TrustedUntil()

	tries := map[string]func() (*lease.Handle, error){
		"SameGoroutine": func() (*lease.Handle, error) { return a.TryLock(ctx, "x") },
		"OtherGoroutine": func() (*lease.Handle, error) {
			got := make(chan lockResult)
			go func() {
				h, err := a.TryLock(ctx, "x")
				got <- lockResult{h: h, err: err}
			}()
			o := <-got
			return o.h, o.err
		},
		"ContextOfTheHandle": func() (*lease.Handle, error) { return a.TryLock(h.Context(), "x") },
		"SecondLocker":       func() (*lease.Handle, error) { return second.TryLock(ctx, "x") },
	}
	for name, try := range tries {
		a.sent.Reset()
		second.sent.Reset()
		_, err := try()
		wantErr(t, err, lease.ErrHeld)
		wantNot(t, err, context.DeadlineExceeded, context.Canceled)
		if n := a.sent.Requests() + second.sent.Requests(); n != 1 {
			t.Errorf("%s: %d requests", name, n)
		}
	}
	for _, p := range []*peer{a, second} {
		begun := time.Now()
		_, err := p.Lock(ctx, "x", mutex.WithWait(wait))
		wantErr(t, err, lease.ErrHeld, context.DeadlineExceeded)
		if took := time.Since(begun); took < wait || took > wait+slack {
			t.Errorf("waited for %v, want %v", took, wait)
		}
	}
	wantHeld(t, h)
	if h.Token() != token || !h.TrustedUntil().Equal(trust) {
		t.Errorf("token %d and trust %v became %d and %v", token, trust, h.Token(), h.TrustedUntil())
	}
	a.unlock(h)
}

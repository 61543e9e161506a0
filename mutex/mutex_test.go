package mutex_test

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/lease"
)

func TestLocker_LockRenewRelease(t *testing.T) {
	inBubble(t, func(w *world) {
		h, err := w.locks.Lock(w.ctx, "orders:42")
		if err != nil {
			w.Fatal(err)
		}
		w.advance(10 * T)
		w.wantHeld(h)
		_, err = w.locks.TryLock(w.ctx, "orders:42")
		wantMatch(w, err, is(lease.ErrHeld))
		w.release(h)
		w.wantReleased(h)
		if next := w.lock("orders:42"); next.Token() <= h.Token() {
			w.Errorf("token %d after %d", next.Token(), h.Token())
		}
	})
}

func TestLocker_HandOver(t *testing.T) {
	inBubble(t, func(w *world) {
		first := w.lock("x")
		got := w.waiting(w.locks, w.ctx, "x")
		w.advance(40 * time.Second)
		w.stillWaiting(got)
		w.release(first)
		h := w.granted(got) // no time passes
		w.advance(time.Hour)
		w.wantHeld(h)
	})
}

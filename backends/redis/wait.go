package redis

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/internal/ctxerr"
	"github.com/leasehold-go/leasehold/lease"
)

// Wait takes the lease as soon as it is this owner's turn. A free name that nobody waits for costs one request, and neither a
// goroutine nor the subscription; otherwise that request has left the owner in the queue, and Wait blocks until the lease is
// granted, ctx ends, or a request for this name ends without a reply. held is called in the calling goroutine at each
// confirmation that somebody else holds the name.
//
// After an error the owner may still have its place or even the lease, unless the error matches lease.ErrInvalid. The caller then
// calls again, which keeps both, or withdraws the owner by Release with a zero token. Calls may be concurrent, but
// not for the same name and owner: of such two, the first ends with an error.
func (b *Backend) Wait(ctx context.Context, req lease.Request, held func(lease.Holder)) (lease.Grant, error) {
	if err := req.Validate(); err != nil {
		return lease.Grant{}, err
	}
	w := &waiter{owner: req.Owner, ttl: req.TTL, wake: make(chan struct{}, 1)}
	l, err := b.enter(req.Name, w)
	if err != nil {
		return lease.Grant{}, wrap("wait", req.Name, err)
	}
	g, err := b.queue(ctx, l, w, req, held)
	handed := b.leave(l, w)
	switch {
	case g.Token != 0:
		return g, nil
	case handed != nil:
		return *handed, nil
	}
	return lease.Grant{}, wrap("wait", req.Name, err)
}

// queue sends the owner's request, again whenever its place may be gone, until its wait is over. A grant that was delivered to w
// remains there.
func (b *Backend) queue(ctx context.Context, l *line, w *waiter, req lease.Request, held func(lease.Holder)) (lease.Grant, error) {
	ttl := req.TTL.Milliseconds()
	for {
		sent := b.clk.Now()
		reply, err := b.ops.do(ctx, &op{
			script: waitScript,
			args: waitScript.args(&l.keys, req.Owner, req.Label, ttl, ttl+retention.Milliseconds(), b.inboxID,
				keepPlaces.Milliseconds(), keepQueue.Milliseconds()),
			who: claimant{l.keys.record, req.Owner},
		}, callBound(req.TTL))
		if err != nil {
			return lease.Grant{}, err
		}
		t, err := readTaken(reply)
		if err != nil {
			return lease.Grant{}, err
		}
		if t.granted {
			return lease.Grant{Token: t.token, TTL: time.Duration(ttl) * time.Millisecond, ExpiresAt: t.expiresAt, Since: sent}, nil
		}
		b.park(l, w, sent, t)
		if held != nil {
			held(t.holder)
		}
		if again, err := b.await(ctx, w, held); !again {
			return lease.Grant{}, err
		}
	}
}

// await blocks until there is news for w that ends its wait. It reports whether w has to queue again.
func (b *Backend) await(ctx context.Context, w *waiter, held func(lease.Holder)) (again bool, err error) {
	for {
		select {
		case <-ctx.Done():
			return false, ctxerr.Of(ctx)
		case <-w.wake:
		}
		b.mu.Lock()
		news := w.news
		w.news.again, w.news.held = false, nil
		b.mu.Unlock()
		switch {
		case news.grant != nil || news.err != nil:
			return false, news.err
		case news.again:
			return true, nil
		case news.held != nil && held != nil:
			held(*news.held)
		}
	}
}

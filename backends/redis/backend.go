package redis

import (
	"context"
	"crypto/rand"
	"strconv"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/lease"
)

var _ lease.Queuer = (*Backend)(nil)

const (
	// minCallBound is the least time that a request gets, however short the lease: the first one has a connection to make.
	minCallBound = 250 * time.Millisecond
	// maxCallBound is what a request gets that names no TTL.
	maxCallBound = 5 * time.Second
	// retention is how long the last token of a name outlives its lease. The scripts say the same.
	retention = 24 * time.Hour
)

// Backend keeps leases in Redis. All methods are safe for concurrent use.
type Backend struct {
	// Fixed after New.
	settings
	client  goredis.UniversalClient
	inboxID string // names this Backend among all that wait
	ops     committer
	ctx     context.Context // ends with the Backend
	cancel  context.CancelFunc
	wg      sync.WaitGroup // lines and subscriptions

	mu     sync.Mutex // guards what follows, and the lines
	closed bool
	lines  map[string]*line // by record key: names that somebody here waits for, or did a moment ago
	inbox  *inbox           // nil while nobody waits
}

// New returns a Backend that talks to Redis through client, which may be of a standalone server, of Sentinel or of a Cluster. It
// sends nothing. The client remains the caller's: it may be shared, and whoever made it closes it, after Backend.Close. If the
// application keeps the client's connections busy, with blocking commands above all, renewals stand in line for one too: give the
// Backend a client of its own then.
//
// All violations in the arguments come back joined, each a *lease.OptionError.
func New(client goredis.UniversalClient, opts ...Option) (*Backend, error) {
	s := defaults()
	for _, opt := range opts {
		opt(&s)
	}
	if err := s.validate(client); err != nil {
		return nil, err
	}
	b := &Backend{settings: s, client: client, inboxID: rand.Text(), lines: make(map[string]*line)}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.ops.init(client, s.clk)
	return b, nil
}

// Info says that tokens survive the loss of all data: they are the server's time. It blocks on nothing.
func (b *Backend) Info() lease.Info { return lease.Info{Name: "redis", TokensSurvive: true} }

// Acquire makes one attempt to take the lease, in one request. It blocks until the reply, the end of ctx, or the bound on one
// request: a third of the TTL, at least 250 ms and at most 5 s. *lease.HeldError says that another owner holds the name, or is next in
// the queue; errors that match lease.ErrPermanent that it is of no use to try again. After any other error the lease may have
// been granted, or may yet be.
func (b *Backend) Acquire(ctx context.Context, req lease.Request) (lease.Grant, error) {
	if err := req.Validate(); err != nil {
		return lease.Grant{}, err
	}
	ttl := req.TTL.Milliseconds()
	k := b.keysOf(req.Name)
	reply, err := b.ops.do(ctx, &op{
		script: acquireScript,
		args:   acquireScript.args(&k, req.Owner, req.Label, ttl, ttl+retention.Milliseconds()),
		who:    claimant{k.record, req.Owner},
	}, callBound(req.TTL))
	if err != nil {
		return lease.Grant{}, wrap("acquire", req.Name, err)
	}
	t, err := readTaken(reply)
	switch {
	case err != nil:
		return lease.Grant{}, wrap("acquire", req.Name, err)
	case !t.granted:
		return lease.Grant{}, &lease.HeldError{Name: req.Name, Holder: t.holder}
	}
	return lease.Grant{Token: t.token, TTL: time.Duration(ttl) * time.Millisecond, ExpiresAt: t.expiresAt}, nil
}

// Renew makes the lease run for ttl from now, if it is claim's. It blocks as Acquire does. lease.ErrMissing and lease.ErrTaken
// say that it is not, and that nothing was changed; after any other error the lease may have been renewed or not.
func (b *Backend) Renew(ctx context.Context, claim lease.Claim, ttl time.Duration) (lease.Grant, error) {
	if err := (lease.Request{Name: claim.Name, Owner: claim.Owner, TTL: ttl}).Validate(); err != nil {
		return lease.Grant{}, err
	}
	ms := ttl.Milliseconds()
	k := b.keysOf(claim.Name)
	reply, err := b.ops.do(ctx, &op{
		script: renewScript,
		args:   renewScript.args(&k, head(claim), ms, ms+retention.Milliseconds()),
	}, callBound(ttl))
	if err != nil {
		return lease.Grant{}, wrap("renew", claim.Name, err)
	}
	expiresAt, err := readRenewed(reply)
	if err != nil {
		return lease.Grant{}, wrap("renew", claim.Name, err)
	}
	return lease.Grant{Token: claim.Token, TTL: time.Duration(ms) * time.Millisecond, ExpiresAt: expiresAt}, nil
}

// Release ends the lease, if it is claim's, and hands it to the next in the queue; with a zero token it withdraws an owner whose
// attempt ended unknown, after that attempt's request has come back or half of the time is over. It blocks until the reply, the end of ctx, or 5 s. The request is sent once and never repeated, not by the client
// either: lease.ErrMissing and lease.ErrTaken can be believed. After any other error the lease may have ended or not.
func (b *Backend) Release(ctx context.Context, claim lease.Claim) error {
	if err := (lease.Request{Name: claim.Name, Owner: claim.Owner, TTL: lease.MinTTL}).Validate(); err != nil {
		return err
	}
	k := b.keysOf(claim.Name)
	o := &op{script: releaseScript, once: true}
	if claim.Token == 0 {
		o.script = withdrawScript
		o.args = o.script.args(&k, claim.Owner, b.inboxID)
		b.ops.settled(ctx, claimant{k.record, claim.Owner}, maxCallBound)
	} else {
		o.args = o.script.args(&k, head(claim), claim.Token.String(), b.inboxID)
	}
	sent := b.clk.Now()
	reply, err := b.ops.do(ctx, o, maxCallBound)
	if err != nil {
		// The name may have been handed to a waiter here, in the reply that was lost.
		b.requeue(k.record)
		return wrap("release", claim.Name, err)
	}
	next, err := readReleased(reply)
	if err != nil {
		return wrap("release", claim.Name, err)
	}
	if next != nil {
		b.deliver(k.record, next, sent)
	}
	return nil
}

// Close ends the subscription and everything else that runs for the Backend, but neither the leases nor the client. Calls in
// progress return lease.ErrClosed, as do those that come later. It blocks until all goroutines are gone: at once, or if the server is silent,
// after the client's dial and read timeouts. It may be called twice.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	for _, l := range b.lines {
		l.failLocked(lease.ErrClosed)
		poke(l.wake)
	}
	b.mu.Unlock()
	b.cancel()
	b.ops.close()
	b.wg.Wait()
	return nil
}

// head is what the record of claim begins with.
func head(c lease.Claim) string {
	buf := make([]byte, 0, 20+1+len(c.Owner)+1)
	buf = strconv.AppendUint(buf, uint64(c.Token), 10)
	buf = append(buf, ' ')
	buf = append(buf, c.Owner...)
	return string(append(buf, ' '))
}

func callBound(ttl time.Duration) time.Duration { return max(lease.CallBound(ttl), minCallBound) }

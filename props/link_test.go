package props

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/internal/ctxerr"
	"github.com/leasehold-go/leasehold/lease"
)

// link is a worker's way to the store.
type link struct {
	there, back time.Duration
	cut         cut
	tell        time.Duration // after which the sender of a lost message gets an error; negative: it hears nothing
	fates       []fate        // of the next requests, before the rule above
}

type cut uint8

const (
	open cut = iota
	noRequests
	noReplies
)

func (c cut) String() string { return [...]string{"open", "no requests", "no replies"}[c] }

// fate is what becomes of one request.
type fate struct {
	kind        fateKind
	there, back time.Duration
	tell        time.Duration
	again       time.Duration // duplicated: from the first arrival to the second
}

type fateKind uint8

const (
	fine fateKind = iota
	requestLost
	replyLost
	refused    // by something on the way, at once
	duplicated // it arrives twice; the first is answered
	deaf       // a renewal's caller does not listen to its context
)

func (k fateKind) String() string {
	return [...]string{"fine", "request lost", "reply lost", "refused", "duplicated", "deaf"}[k]
}

type op uint8

const (
	opAcquire op = iota
	opWait
	opRenew
	opRelease
	opWithdraw
)

func (o op) String() string { return [...]string{"acquire", "wait", "renew", "release", "withdraw"}[o] }

// request is one call of the backend.
type request struct {
	id    int
	w     *worker
	op    op
	call  *call
	name  string
	owner string
	token lease.Token
	ttl   time.Duration
	req   lease.Request
	fate  fate
	ctx   context.Context

	sent      stamp
	local     time.Time
	state     lease.State // of its handle when it was sent
	renewals  int         // renewals of the same owner in flight, and not hung up, when it was sent
	told      bool        // Wait: that the name is held
	leaving   bool        // Wait: its context has ended, and it waits for the store's word
	reply     chan answer
	news      chan lease.Holder
	over      bool
	back      stamp
	backLocal time.Time
	err       error
	grant     lease.Grant
}

type answer struct {
	grant lease.Grant
	err   error
}

var (
	errLostOnTheWay = errors.New("network: no answer")
	errRefused      = errors.New("network: connection refused")
)

// poller is a worker's view of the store, as a backend without a queue; queuer is one with.
type (
	poller struct{ w *worker }
	queuer struct{ poller }
)

var (
	_ lease.Backend = poller{}
	_ lease.Queuer  = queuer{}
)

func (p poller) Info() lease.Info { return lease.Info{Name: "simulated"} }

func (p poller) Acquire(ctx context.Context, req lease.Request) (lease.Grant, error) {
	return p.w.ask(ctx, &request{op: opAcquire, name: req.Name, owner: req.Owner, ttl: req.TTL, req: req}, nil)
}

func (p poller) Renew(ctx context.Context, c lease.Claim, ttl time.Duration) (lease.Grant, error) {
	return p.w.ask(ctx, &request{op: opRenew, name: c.Name, owner: c.Owner, token: c.Token, ttl: ttl}, nil)
}

func (p poller) Release(ctx context.Context, c lease.Claim) error {
	o := opRelease
	if c.Token == 0 {
		o = opWithdraw
	}
	_, err := p.w.ask(ctx, &request{op: o, name: c.Name, owner: c.Owner, token: c.Token}, nil)
	return err
}

func (q queuer) Wait(ctx context.Context, req lease.Request, held func(lease.Holder)) (lease.Grant, error) {
	return q.w.ask(ctx, &request{op: opWait, name: req.Name, owner: req.Owner, ttl: req.TTL, req: req}, held)
}

// ask sends a request and waits for its answer, on the product's goroutine.
func (w *worker) ask(ctx context.Context, rq *request, held func(lease.Holder)) (lease.Grant, error) {
	if err := ctxerr.Of(ctx); err != nil {
		return lease.Grant{}, err
	}
	w.send(ctx, rq)
	ended := ctx.Done()
	if rq.fate.kind == deaf {
		ended = nil
	}
	for {
		select {
		case h := <-rq.news:
			rq.told = true
			held(h)
		case a := <-rq.reply:
			for len(rq.news) > 0 {
				rq.told = true
				held(<-rq.news)
			}
			return w.returned(rq, a)
		case <-ended:
			err := ctxerr.Of(ctx)
			if rq.op == opWait && w.s.leaveQueue(rq) { // and the store says that nothing is left behind
				a := <-rq.reply
				var now *lease.HeldError
				if errors.As(a.err, &now) {
					now.Cause = err
				}
				return w.returned(rq, a)
			}
			return w.returned(rq, answer{err: fmt.Errorf("%s: %w", rq.op, err)})
		}
	}
}

// send lets a request go on its way.
func (w *worker) send(ctx context.Context, rq *request) {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	rq.id, rq.w, rq.ctx = len(s.hist.reqs), w, ctx
	rq.sent, rq.local = s.stampLocked(), w.clk.Now()
	rq.reply, rq.news = make(chan answer, 1), make(chan lease.Holder, 16)
	rq.call = s.callOfLocked(rq)
	rq.fate = w.fateLocked(rq)
	s.hist.reqs = append(s.hist.reqs, rq)
	if c := rq.call; c != nil {
		for _, other := range c.reqs {
			if other.op == opRenew && !other.over && other.ctx.Err() == nil {
				rq.renewals++
			}
		}
		c.reqs = append(c.reqs, rq)
		if c.hold != nil {
			rq.state = c.hold.control.State()
			if rq.state != lease.Held && rq.op == opRelease {
				s.signalsLocked(c.hold, "when the delete was sent")
			}
		}
	}
	s.noteLocked(w.name, "→ r%d %s %s #%d %v: %v", rq.id, rq.op, rq.name, rq.callID(), rq.ttl, rq.fate.kind)
	if rq.fate.kind == requestLost || rq.fate.kind == refused {
		if rq.fate.tell >= 0 {
			err := errLostOnTheWay
			if rq.fate.kind == refused {
				err = errRefused
			}
			s.afterLocked(rq.fate.tell, func() { s.deliver(rq, answer{err: err}) })
		}
		return
	}
	s.afterLocked(rq.fate.there, func() { s.arrive(rq, false) })
	if rq.fate.kind == duplicated && rq.op != opWait {
		s.afterLocked(rq.fate.there+rq.fate.again, func() { s.arrive(rq, true) })
	}
}

func (rq *request) callID() int {
	if rq.call == nil {
		return -1
	}
	return rq.call.id
}

// fateLocked says what becomes of rq.
func (w *worker) fateLocked(rq *request) fate {
	l := &w.link
	f := fate{kind: fine, there: l.there, back: l.back, tell: l.tell}
	switch {
	case w.crashed || l.cut == noRequests:
		f.kind = requestLost
	case len(l.fates) > 0:
		f = l.fates[0]
		l.fates = l.fates[1:]
		if f.kind == deaf && (rq.op != opRenew || rq.call == nil || rq.call.hold == nil) {
			f.kind = fine
		}
	}
	if rq.op == opWait && f.tell < 0 { // a call that waits without a bound of its own must be told of a dead connection
		f.tell = w.s.base
	}
	return f
}

// returned notes the end of a request.
func (w *worker) returned(rq *request, a answer) (lease.Grant, error) {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	rq.over, rq.back, rq.backLocal = true, s.stampLocked(), w.clk.Now()
	rq.grant, rq.err = a.grant, a.err
	if a.err != nil {
		s.noteLocked(w.name, "← r%d %s: %v", rq.id, rq.op, a.err)
	} else {
		s.noteLocked(w.name, "← r%d %s: token %d for %v", rq.id, rq.op, a.grant.Token, a.grant.TTL)
	}
	return a.grant, a.err
}

// deliver brings an answer to the caller, or keeps it while the worker is paused.
func (s *sim) deliver(rq *request, a answer) {
	s.toWorker(rq.w, func() {
		select {
		case rq.reply <- a:
		default:
		}
	})
}

func (s *sim) toWorker(w *worker, f func()) {
	s.mu.Lock()
	paused := w.paused
	if paused {
		w.inbox = append(w.inbox, f)
	}
	s.mu.Unlock()
	if !paused {
		f()
	}
}

// answer sends the store's answer back.
func (s *sim) answer(rq *request, a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, w := rq.fate, rq.w
	if rq.leaving { // calls return soon after their context has ended
		f.back, f.tell = 0, 0
	}
	if f.kind == deaf && f.tell < 0 { // it ends some time
		f.tell = f.back
	}
	if f.kind == replyLost || w.crashed || w.link.cut == noReplies {
		if f.tell >= 0 {
			s.afterLocked(f.tell, func() { s.deliver(rq, answer{err: errLostOnTheWay}) })
		}
		return
	}
	s.afterLocked(f.back, func() { s.deliver(rq, a) })
}

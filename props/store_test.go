package props

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/lease"
)

// parked is a call of Wait as the store sees it: a connection on which somebody waits.
type parked struct {
	rq     *request
	cancel context.CancelFunc
	done   chan struct{}
}

// arrive carries a request out. It runs on the goroutine that moves time, and so does everything that changes the store but
// the end of a wait.
func (s *sim) arrive(rq *request, again bool) {
	if rq.op == opWait {
		s.park(rq)
		return
	}
	ctx := context.Background()
	a := &applied{req: rq, now: s.store.Now()}
	a.before, a.had = look(s.mem, rq.name)
	var out answer
	switch rq.op {
	case opAcquire:
		out.grant, out.err = s.mem.Acquire(ctx, rq.req)
	case opRenew:
		out.grant, out.err = s.mem.Renew(ctx, lease.Claim{Name: rq.name, Owner: rq.owner, Token: rq.token}, rq.ttl)
	case opRelease:
		out.err = s.mem.Release(ctx, lease.Claim{Name: rq.name, Owner: rq.owner, Token: rq.token})
	case opWithdraw:
		out.err = s.mem.Release(ctx, lease.Claim{Name: rq.name, Owner: rq.owner})
		s.hangUp(rq.owner)
	}
	a.after, a.has = look(s.mem, rq.name)
	a.err = out.err
	s.mu.Lock()
	a.at = s.stampLocked()
	s.hist.applied = append(s.hist.applied, a)
	if a.has {
		s.grantedLocked(rq.name, a.after.owner, a.after.token, a.after.expires)
	}
	s.noteLocked("store", "r%d %s %s #%d: %v; %v", rq.id, rq.op, rq.name, rq.callID(), out.err, a.describe(s))
	s.mu.Unlock()
	if !again {
		s.answer(rq, out)
	}
}

func (a *applied) describe(s *sim) string {
	if !a.has {
		return "free"
	}
	return "token " + a.after.token.String() + " until " + a.after.expires.Sub(s.store.base).String()
}

// grantedLocked notes until when a grant runs, and the grant itself unless it is known.
func (s *sim) grantedLocked(name, owner string, token lease.Token, expires time.Time) {
	s.expiry[leaseKey{name, token}] = expires.Sub(s.store.base)
	if !slices.ContainsFunc(s.hist.grants, func(o grant) bool { return o.token == token && o.owner == owner && o.name == name }) {
		for _, o := range s.hist.grants {
			if o.name == name && o.token >= token {
				s.breachLocked("TokensIncrease", "%s: token %d is granted after token %d", name, token, o.token)
			}
		}
		s.hist.grants = append(s.hist.grants, grant{name: name, owner: owner, token: token, at: s.stampLocked()})
	}
}

// park lets the store's side of a wait run. A second wait of the same owner takes the place of the first.
func (s *sim) park(rq *request) {
	ctx, cancel := context.WithCancel(context.Background())
	p := &parked{rq, cancel, make(chan struct{})}
	s.mu.Lock()
	old := s.parked[rq.owner]
	s.parked[rq.owner] = p
	s.noteLocked("store", "r%d %s %s #%d arrives", rq.id, rq.op, rq.name, rq.callID())
	s.mu.Unlock()
	if old != nil {
		old.cancel()
	}
	go func() {
		defer close(p.done)
		defer cancel()
		if old != nil {
			<-old.done
		}
		g, err := s.mem.Wait(ctx, rq.req, func(h lease.Holder) { s.tellHeld(rq, h) })
		s.mu.Lock()
		if s.parked[rq.owner] == p {
			delete(s.parked, rq.owner)
		}
		if err == nil {
			s.grantedLocked(rq.name, rq.owner, g.Token, g.ExpiresAt)
			s.noteLocked("store", "r%d wait %s #%d: token %d until %v", rq.id, rq.name, rq.callID(), g.Token, s.expiry[leaseKey{rq.name, g.Token}])
		} else {
			s.noteLocked("store", "r%d wait %s #%d ends: %v", rq.id, rq.name, rq.callID(), err)
		}
		s.mu.Unlock()
		s.answer(rq, answer{g, err})
	}()
}

// tellHeld sends the news that the name is held.
func (s *sim) tellHeld(rq *request, h lease.Holder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rq.fate.kind == replyLost || rq.w.crashed || rq.w.link.cut == noReplies {
		return
	}
	s.afterLocked(rq.fate.back, func() {
		s.toWorker(rq.w, func() {
			select {
			case rq.news <- h:
			default:
			}
		})
	})
}

// hangUp ends what owner has parked.
func (s *sim) hangUp(owner string) {
	s.mu.Lock()
	p := s.parked[owner]
	s.mu.Unlock()
	if p != nil {
		p.cancel()
	}
}

// leaveQueue tells the store that a waiter's context has ended. It reports whether the store will answer for certain, so that the caller
// can wait for it; otherwise the message travels, may be lost, and the store notices by itself in the end.
func (s *sim) leaveQueue(rq *request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := rq.w
	hangUp := func() {
		s.mu.Lock()
		p := s.parked[rq.owner]
		mine := p != nil && p.rq == rq
		s.mu.Unlock()
		if mine {
			p.cancel()
		}
	}
	p := s.parked[rq.owner]
	if p != nil && p.rq == rq && !w.crashed && w.link.cut == open && rq.fate.kind == fine && !s.dirtyLeave {
		rq.leaving = true
		s.afterLocked(0, hangUp)
		return true
	}
	if !w.crashed && w.link.cut != noRequests {
		s.afterLocked(max(rq.fate.there, w.link.there), hangUp)
	}
	s.afterLocked(s.base, hangUp) // the store notices a dead connection
	return false
}

// steal deletes name's record as a third party would.
func (s *sim) steal(name string) bool {
	r, ok := look(s.mem, name)
	if !ok || !s.store.Now().Before(r.expires) {
		return false
	}
	s.mu.Lock()
	s.robbed[leaseKey{name, r.token}] = s.stampLocked()
	s.noteLocked("store", "somebody deletes %s (token %d)", name, r.token)
	s.mu.Unlock()
	s.start(func() {
		err := s.mem.Release(context.Background(), lease.Claim{Name: name, Owner: r.owner, Token: r.token})
		if err != nil && !errors.Is(err, lease.ErrNotOwner) {
			panic(err)
		}
	})
	return true
}

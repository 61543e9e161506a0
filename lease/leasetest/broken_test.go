package leasetest

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/lease"
)

// store is a plain backend with a queue that is right unless it is told to have a bug. Each bug breaks one rule and is found by
// its name where the rule is kept.
type store struct {
	bug string

	mu      sync.Mutex
	records map[string]*record
	last    map[string]lease.Token
	queues  map[string][]*place
}

// record is a name that is held. A record without an owner counts for nothing.
type record struct {
	req     lease.Request
	token   lease.Token
	expires time.Time
}

type place struct {
	req     lease.Request
	granted chan lease.Grant
}

func newStore(bug string) *store {
	s := &store{bug: bug}
	s.forget()
	return s
}

func (s *store) has(bug string) bool { return s.bug == bug }

func (s *store) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records, s.last, s.queues = map[string]*record{}, map[string]lease.Token{}, map[string][]*place{}
}

func (s *store) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, s.key(name))
}

func (s *store) Info() lease.Info {
	return lease.Info{Name: "store", TokensSurvive: s.has("claims that tokens survive")}
}

func (s *store) Acquire(ctx context.Context, req lease.Request) (lease.Grant, error) {
	if err := req.Validate(); err != nil && !s.has("validates nothing") {
		return lease.Grant{}, err
	}
	if ctx.Err() != nil && !s.has("looks at no ctx") {
		return lease.Grant{}, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acquireLocked(req)
}

func (s *store) acquireLocked(req lease.Request) (lease.Grant, error) {
	r := s.currentLocked(req.Name)
	if r == nil && s.has("looks, then takes") {
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
	}
	switch {
	case r == nil:
		return s.grantLocked(req, req.TTL), nil
	case s.sameOwner(r.req.Owner, req.Owner) && !s.has("acquire loses to itself"):
		return s.repeatLocked(r, req), nil
	}
	if s.has("refused tries extend") {
		r.expires = later(r.expires, time.Now().Add(req.TTL))
	}
	h := lease.Holder{Label: r.req.Label, Token: r.token, Remaining: time.Until(r.expires)}
	if s.has("tells of the asker") {
		h.Label = req.Label + "?"
	}
	err := error(&lease.HeldError{Name: req.Name, Holder: h})
	if s.has("refusal is a timeout") {
		err = errors.Join(err, context.DeadlineExceeded)
	}
	return lease.Grant{}, err
}

func (s *store) repeatLocked(r *record, req lease.Request) lease.Grant {
	switch {
	case s.has("repeat gets a new token"):
		return s.grantLocked(req, req.TTL)
	case s.has("repeat keeps the old expiry"):
		return lease.Grant{Token: r.token, TTL: req.TTL, ExpiresAt: r.expires}
	}
	former := r.expires
	g := r.run(req.TTL)
	if !s.has("repeat shortens") {
		r.expires = later(former, r.expires)
	}
	return g
}

func (s *store) Renew(ctx context.Context, claim lease.Claim, ttl time.Duration) (lease.Grant, error) {
	if ctx.Err() != nil {
		return lease.Grant{}, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.currentLocked(claim.Name)
	if s.has("renew revives") {
		r = s.records[s.key(claim.Name)]
	}
	switch {
	case r == nil && s.has("renew creates"):
		return s.grantLocked(lease.Request{Name: claim.Name, Owner: claim.Owner}, ttl), nil
	case r == nil:
		return lease.Grant{}, lease.ErrMissing
	case !s.sameOwner(r.req.Owner, claim.Owner) && !s.has("renew checks no owner"),
		r.token != claim.Token && !s.has("renew checks no token"):
		return lease.Grant{}, lease.ErrTaken
	}
	former := r.expires
	g := r.run(ttl)
	switch {
	case s.has("renew tells what is left"):
		g.TTL += time.Until(former)
	case s.has("renew adds"):
		r.expires = former.Add(ttl)
	case !s.has("renew shortens"):
		r.expires = later(former, r.expires)
	}
	if s.has("renew raises the token") {
		r.token++
		g.Token++
	}
	return g, nil
}

func (s *store) Release(ctx context.Context, claim lease.Claim) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if claim.Token == 0 {
		return s.withdrawLocked(claim)
	}
	r := s.currentLocked(claim.Name)
	last := s.last[s.key(claim.Name)]
	switch {
	case r == nil && (last == claim.Token && !s.has("release after expiry is refused") || s.has("release of a missing record is nil")):
		return nil
	case r == nil:
		return lease.ErrMissing
	case !s.sameOwner(r.req.Owner, claim.Owner) && !s.has("release checks no owner"),
		r.token != claim.Token && !s.has("release checks no token") && !s.has("release checks no owner"):
		return lease.ErrTaken
	}
	s.endLocked(claim.Name)
	return nil
}

func (s *store) withdrawLocked(claim lease.Claim) error {
	if s.has("withdrawal is refused") {
		return lease.ErrMissing
	}
	r := s.currentLocked(claim.Name)
	s.leaveLocked(claim)
	if r != nil && (r.req.Owner == claim.Owner || s.has("withdrawal frees anybody")) {
		if s.has("withdrawal serves nobody") {
			delete(s.records, s.key(claim.Name))
			return nil
		}
		s.endLocked(claim.Name)
	}
	return nil
}

func (s *store) Wait(ctx context.Context, req lease.Request, held func(lease.Holder)) (lease.Grant, error) {
	if err := errors.Join(req.Validate(), ctx.Err()); err != nil {
		return lease.Grant{}, err
	}
	p := &place{req: req, granted: make(chan lease.Grant, 1)}
	for {
		s.mu.Lock()
		g, err := s.acquireLocked(req)
		if err != nil {
			s.standLocked(p)
		}
		s.mu.Unlock()
		var refusal *lease.HeldError
		if !errors.As(err, &refusal) {
			return g, err
		}
		if held != nil && !s.has("tells waiters nothing") {
			held(refusal.Holder)
		}
		look := min(refusal.Holder.Remaining, time.Second)
		if s.has("looks at the first end only") {
			look = refusal.Holder.Remaining
		}
		select {
		case g := <-p.granted:
			return g, nil
		case <-time.After(look):
		case <-ctx.Done():
			return lease.Grant{}, s.giveUp(ctx, req, refusal)
		}
	}
}

// giveUp leaves the queue, and passes on what was granted at the same moment.
func (s *store) giveUp(ctx context.Context, req lease.Request, refusal *lease.HeldError) error {
	refusal.Cause = ctx.Err()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.has("who gives up stays in line") {
		return refusal
	}
	s.leaveLocked(lease.Claim{Name: req.Name, Owner: req.Owner})
	if r := s.currentLocked(req.Name); r != nil && r.req.Owner == req.Owner && !s.has("who gives up keeps the lease") {
		s.endLocked(req.Name)
	}
	return refusal
}

func (s *store) standLocked(p *place) {
	key := s.line(p.req.Name)
	if !slices.Contains(s.queues[key], p) {
		s.queues[key] = append(s.queues[key], p)
	}
}

func (s *store) leaveLocked(claim lease.Claim) {
	key := s.line(claim.Name)
	s.queues[key] = slices.DeleteFunc(s.queues[key], func(p *place) bool {
		return p.req.Owner == claim.Owner && p.req.Name == claim.Name
	})
}

// currentLocked returns who holds name. A lease whose time is over makes way here.
func (s *store) currentLocked(name string) *record {
	r := s.records[s.key(name)]
	switch {
	case r == nil && !s.has("deletion strands the line") && !strings.HasPrefix(s.bug, "tries overtake"):
		s.serveLocked(name)
	case r == nil, s.has("expiry is ignored"):
		return r
	case !time.Now().Before(r.expires):
		if s.has("expiry resets the token") {
			delete(s.last, s.key(name))
		}
		if s.has("renew revives") {
			return nil
		}
		if s.has("tries overtake at expiry") {
			delete(s.records, s.key(name))
			return nil
		}
		s.endLocked(name)
	}
	return s.records[s.key(name)]
}

// endLocked ends the present lease on name and serves the next in line.
func (s *store) endLocked(name string) {
	delete(s.records, s.key(name))
	if s.has("release resets the token") {
		delete(s.last, s.key(name))
	}
	if s.has("tries overtake") {
		return
	}
	s.serveLocked(name)
	if s.has("serves two") {
		s.serveLocked(name)
	}
}

func (s *store) serveLocked(name string) {
	key := s.line(name)
	line := s.queues[key]
	if len(line) == 0 {
		return
	}
	i := 0
	if s.has("last come, first served") {
		i = len(line) - 1
	}
	p := line[i]
	s.queues[key] = slices.Delete(line, i, i+1)
	ttl := lease.ClaimTTL(p.req.TTL)
	if s.has("hands over for the full TTL") {
		ttl = p.req.TTL
	}
	if s.has("hands over under the same token") {
		s.last[s.key(name)]--
	}
	p.granted <- s.grantLocked(p.req, ttl)
}

func (s *store) grantLocked(req lease.Request, ttl time.Duration) lease.Grant {
	key := s.key(req.Name)
	if !s.has("tokens begin at 0") || s.last[key] > 0 {
		s.last[key]++
	}
	r := &record{req: req, token: s.last[key]}
	s.records[key] = r
	return r.run(ttl)
}

func (r *record) run(ttl time.Duration) lease.Grant {
	r.expires = time.Now().Add(ttl)
	return lease.Grant{Token: r.token, TTL: ttl, ExpiresAt: r.expires}
}

func (s *store) sameOwner(a, b string) bool {
	if s.has("owners compare by prefix") {
		return strings.HasPrefix(a, b) || strings.HasPrefix(b, a)
	}
	return a == b
}

// key maps a name to its record.
func (s *store) key(name string) string {
	switch {
	case s.has("names are folded"):
		return strings.ToLower(name)
	case s.has("names are trimmed"):
		return strings.TrimSpace(name)
	case s.has("names are cut"):
		return name[:min(len(name), 255)]
	}
	return name
}

// line maps a name to its queue.
func (s *store) line(name string) string {
	if s.has("one line for all names") {
		return ""
	}
	return s.key(name)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

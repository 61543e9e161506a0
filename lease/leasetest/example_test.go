package leasetest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/lease/leasetest"
)

// mapStore is a small backend: a map, a mutex, and no queue.
type mapStore struct {
	mu      sync.Mutex
	records map[string]record
	last    map[string]lease.Token // of each name, kept for ever
}

type record struct {
	owner, label string
	token        lease.Token
	expires      time.Time
}

func newMapStore() *mapStore {
	return &mapStore{records: make(map[string]record), last: make(map[string]lease.Token)}
}

func (s *mapStore) Info() lease.Info { return lease.Info{Name: "map", ProcessLocal: true} }

func (s *mapStore) Acquire(ctx context.Context, req lease.Request) (lease.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, held := s.recordLocked(req.Name)
	if err := errors.Join(req.Validate(), ctx.Err()); err != nil {
		return lease.Grant{}, err
	} else if held && r.owner != req.Owner {
		holder := lease.Holder{Label: r.label, Token: r.token, Remaining: time.Until(r.expires)}
		return lease.Grant{}, &lease.HeldError{Name: req.Name, Holder: holder}
	} else if !held {
		s.last[req.Name]++
		r = record{owner: req.Owner, label: req.Label, token: s.last[req.Name]}
	}
	return s.runLocked(req.Name, r, req.TTL), nil
}

func (s *mapStore) Renew(ctx context.Context, claim lease.Claim, ttl time.Duration) (lease.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, held := s.recordLocked(claim.Name)
	if err := errors.Join(ctx.Err(), r.check(held, claim)); err != nil {
		return lease.Grant{}, err
	}
	return s.runLocked(claim.Name, r, ttl), nil
}

func (s *mapStore) Release(ctx context.Context, claim lease.Claim) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, held := s.recordLocked(claim.Name)
	mine := held && r.owner == claim.Owner && (claim.Token == 0 || claim.Token == r.token)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case mine:
		delete(s.records, claim.Name)
	case claim.Token != 0 && (held || s.last[claim.Name] != claim.Token):
		return r.check(held, claim)
	}
	return nil
}

// check compares claim with the record, if there is one.
func (r record) check(held bool, claim lease.Claim) error {
	if !held {
		return lease.ErrMissing
	} else if r.owner != claim.Owner || r.token != claim.Token {
		return lease.ErrTaken
	}
	return nil
}

// recordLocked returns the record of name, unless its time is over.
func (s *mapStore) recordLocked(name string) (record, bool) {
	r, ok := s.records[name]
	return r, ok && time.Now().Before(r.expires)
}

func (s *mapStore) runLocked(name string, r record, ttl time.Duration) lease.Grant {
	if end := time.Now().Add(ttl); end.After(r.expires) { // a request that comes late must not cut the lease
		r.expires = end
	}
	s.records[name] = r
	return lease.Grant{Token: r.token, TTL: ttl, ExpiresAt: r.expires}
}

// A backend of a third party, and the one call that checks it. It takes time from package time, so a bubble makes its cases
// exact and quick; one that talks to a server leaves WithBubble out.
func ExampleRun() {
	var t *testing.T // from func TestConformance(t *testing.T)
	leasetest.Run(t, func(*testing.T) lease.Backend { return newMapStore() }, leasetest.WithBubble())
}

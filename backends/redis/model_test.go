package redis_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	goredis "github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/leasehold-go/leasehold/backends/memory"
	"github.com/leasehold-go/leasehold/backends/redis"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/lease"
)

// TestModel_RedisAgreesWithMemory runs random sequences of acquire, queue, poll, renew, release, withdraw, cancel and expiry by
// several owners of two processes on real Redis and on the memory backend side by side. Every reply is compared, and at the end the
// queue, by serving it to the last waiter. Tokens are compared by their order: which grant of the name it was.
//
// The default number of sequences is rapid's 100, twice; -rapid.checks sets another.
func TestModel_RedisAgreesWithMemory(t *testing.T) {
	server := redistest.Shared(t)
	for run := range 2 {
		t.Run(fmt.Sprint(run), func(t *testing.T) {
			client := server.Client()
			n := 0
			rapid.Check(t, func(rt *rapid.T) {
				n++
				m := newModel(t, rt, client, fmt.Sprintf("%s%d:", server.Prefix(), n))
				defer m.close()
				rt.Repeat(map[string]func(*rapid.T){
					"acquire":      m.acquire,
					"wait":         m.wait,
					"waitAgain":    m.wait,
					"renew":        m.renew,
					"renewStale":   m.renewStale,
					"release":      m.release,
					"releaseStale": m.releaseStale,
					"releaseOld":   m.releaseStale,
					"withdraw":     m.withdraw,
					"cancel":       m.cancel,
					"poll":         m.poll,
					"expire":       m.expire,
					"":             m.nothingElse,
				})
				m.drain()
			})
		})
	}
}

const (
	modelTTL   = time.Minute
	modelOwner = 5
)

var modelNames = []string{"a", "b{}"}

// side is one of the two systems: Redis with two processes, or memory, which serves both.
type side struct {
	t        *rapid.T
	process  [2]lease.Queuer
	expire   func(name string)        // ends the lease on name, as the end of its time does
	look     func(name string)        // moves the queue of a free name on, as a poll does
	waits    map[string]*parked       // by owner
	grants   map[string][]lease.Token // by name, in order
	held     map[string]lease.Claim   // by owner: what it was granted last and has not released
	previous map[string][]lease.Claim // by owner: older claims
}

// parked is a call of Wait on its way.
type parked struct {
	cancel context.CancelFunc
	name   string
	told   chan struct{} // closed when it was told that the name is held
	result chan outcome
}

type outcome struct {
	grant lease.Grant
	err   error
}

type model struct {
	t       *rapid.T
	redis   *side
	memory  *side
	closers []func()

	// What must be so on both sides.
	holder map[string]string   // by name
	queue  map[string][]string // by name, owners in order of arrival
}

func newModel(t *testing.T, rt *rapid.T, client *goredis.Client, prefix string) *model {
	m := &model{t: rt, holder: make(map[string]string), queue: make(map[string][]string)}
	var a, b *redis.Backend
	for _, p := range []**redis.Backend{&a, &b} {
		backend, err := redis.New(client, redis.WithPrefix(prefix))
		if err != nil {
			t.Fatal(err)
		}
		*p = backend
		m.closers = append(m.closers, func() { _ = backend.Close() })
	}
	m.redis = newSide(rt, a, b)
	m.redis.expire = func(name string) {
		ctx, key := context.Background(), a.RecordKey(name)
		record := client.Get(ctx, key).Val()
		client.PExpire(ctx, key, time.Millisecond)
		for client.Get(ctx, key).Val() == record {
			<-time.After(time.Millisecond)
		}
	}
	m.redis.look = func(name string) { a.Poll(name); b.Poll(name) }

	clk := clock.NewMock()
	clk.Set(time.Unix(1_000_000, 0))
	mem := memory.New(memory.WithClock(clk))
	m.memory = newSide(rt, mem, mem)
	m.memory.expire = func(name string) { mem.Expire(name) }
	m.memory.look = func(name string) { // any look at the record does
		_, _ = mem.Renew(context.Background(), lease.Claim{Name: name, Owner: "nobody", Token: 1}, modelTTL)
	}
	return m
}

func newSide(t *rapid.T, a, b lease.Queuer) *side {
	return &side{
		t:        t,
		process:  [2]lease.Queuer{a, b},
		waits:    make(map[string]*parked),
		grants:   make(map[string][]lease.Token),
		held:     make(map[string]lease.Claim),
		previous: make(map[string][]lease.Claim),
	}
}

func (m *model) close() {
	for _, s := range []*side{m.redis, m.memory} {
		for _, p := range s.waits {
			p.cancel()
			<-p.result
		}
	}
	for _, c := range m.closers {
		c()
	}
}

// owner draws an owner. Its number fixes the name that it wants and the process that it lives in.
func (m *model) owner(t *rapid.T) (owner, name string, process int) {
	n := rapid.IntRange(0, modelOwner*2-1).Draw(t, "owner")
	return fmt.Sprintf("owner%d", n), modelNames[n%2], n / 2 % 2
}

// both runs f on either side, compares what it says, and returns it.
func (m *model) both(t *rapid.T, f func(*side) string) string {
	want, got := f(m.memory), f(m.redis)
	if got != want {
		t.Fatalf("redis: %s\nmemory: %s", got, want)
	}
	return got
}

// passOn expects the free name to be handed to the first in the queue, on both sides, and to nobody if nobody waits.
func (m *model) passOn(t *rapid.T, name string) {
	m.holder[name] = ""
	if len(m.queue[name]) == 0 {
		return
	}
	owner := m.queue[name][0]
	m.queue[name] = m.queue[name][1:]
	m.both(t, func(s *side) string {
		p := s.waits[owner]
		delete(s.waits, owner)
		select {
		case o := <-p.result:
			return s.full(owner, name, o)
		case <-time.After(3 * time.Second):
			return owner + " was not served in its turn"
		}
	})
	m.holder[name] = owner
}

// nothingElse checks that nobody was served out of turn.
func (m *model) nothingElse(t *rapid.T) {
	for _, s := range []*side{m.memory, m.redis} {
		for owner, p := range s.waits {
			if len(p.result) > 0 {
				t.Fatalf("%s was served out of turn", owner) // the result stays for close
			}
		}
	}
}

func (m *model) request(owner, name string) lease.Request {
	return lease.Request{Name: name, Owner: owner, Label: "label of " + owner, TTL: modelTTL}
}

func (m *model) acquire(t *rapid.T) {
	owner, name, process := m.owner(t)
	if m.memory.waits[owner] != nil {
		t.Skip("it waits")
	}
	m.both(t, func(s *side) string {
		grant, err := s.process[process].Acquire(context.Background(), m.request(owner, name))
		return s.granted(owner, name, grant, err)
	})
	m.mayHold(owner, name)
}

// mayHold makes owner the holder if it was just granted the name.
func (m *model) mayHold(owner, name string) {
	if m.memory.held[owner].Name == name {
		m.holder[name] = owner
	}
}

func (m *model) wait(t *rapid.T) {
	owner, name, process := m.owner(t)
	if m.memory.waits[owner] != nil {
		t.Skip("it waits")
	}
	m.both(t, func(s *side) string {
		ctx, cancel := context.WithCancel(context.Background())
		p := &parked{cancel: cancel, name: name, told: make(chan struct{}, 100), result: make(chan outcome, 1)}
		go func() {
			grant, err := s.process[process].Wait(ctx, m.request(owner, name), func(lease.Holder) {
				select {
				case p.told <- struct{}{}:
				default:
				}
			})
			p.result <- outcome{grant, err}
		}()
		select {
		case <-p.told:
			s.waits[owner] = p
			return "parked"
		case o := <-p.result:
			cancel()
			return s.granted(owner, name, o.grant, o.err)
		}
	})
	if m.memory.waits[owner] != nil {
		m.queue[name] = append(m.queue[name], owner)
		return
	}
	m.mayHold(owner, name)
}

func (m *model) renew(t *rapid.T) {
	owner, _, process := m.owner(t)
	claim, ok := m.memory.held[owner]
	if !ok {
		t.Skip("it has nothing")
	}
	m.both(t, func(s *side) string {
		claim = s.held[owner]
		grant, err := s.process[process].Renew(context.Background(), claim, modelTTL)
		return s.reply(claim.Name, grant, err)
	})
}

func (m *model) renewStale(t *rapid.T) {
	owner, _, process := m.owner(t)
	if len(m.memory.previous[owner]) == 0 {
		t.Skip("it never had anything")
	}
	i := rapid.IntRange(0, len(m.memory.previous[owner])-1).Draw(t, "claim")
	m.both(t, func(s *side) string {
		claim := s.previous[owner][i]
		grant, err := s.process[process].Renew(context.Background(), claim, modelTTL)
		return s.reply(claim.Name, grant, err)
	})
}

func (m *model) release(t *rapid.T) {
	owner, name, process := m.owner(t)
	if _, ok := m.memory.held[owner]; !ok {
		t.Skip("it has nothing")
	}
	m.both(t, func(s *side) string {
		claim := s.held[owner]
		s.forget(owner)
		return verdict(s.process[process].Release(context.Background(), claim))
	})
	m.passOn(t, name)
}

func (m *model) releaseStale(t *rapid.T) {
	owner, _, process := m.owner(t)
	if len(m.memory.previous[owner]) == 0 {
		t.Skip("it never had anything")
	}
	i := rapid.IntRange(0, len(m.memory.previous[owner])-1).Draw(t, "claim")
	m.both(t, func(s *side) string {
		return verdict(s.process[process].Release(context.Background(), s.previous[owner][i]))
	})
}

// cancel ends a wait and withdraws its owner, as a caller whose ctx is over does.
func (m *model) cancel(t *rapid.T) {
	owner, name, process := m.owner(t)
	if m.memory.waits[owner] == nil {
		t.Skip("it does not wait")
	}
	m.both(t, func(s *side) string {
		p := s.waits[owner]
		delete(s.waits, owner)
		p.cancel()
		if o := <-p.result; o.err == nil {
			return "granted"
		}
		return "cancelled, " + verdict(s.process[process].Release(context.Background(), lease.Claim{Name: name, Owner: owner}))
	})
	m.queue[name] = slices.DeleteFunc(m.queue[name], func(o string) bool { return o == owner })
}

func (m *model) withdraw(t *rapid.T) {
	owner, name, process := m.owner(t)
	if m.memory.waits[owner] != nil {
		t.Skip("it waits: see cancel")
	}
	m.both(t, func(s *side) string {
		s.forget(owner)
		return verdict(s.process[process].Release(context.Background(), lease.Claim{Name: name, Owner: owner}))
	})
	if m.holder[name] == owner {
		m.passOn(t, name)
	}
}

func (m *model) poll(t *rapid.T) {
	name := rapid.SampledFrom(modelNames).Draw(t, "name")
	m.both(t, func(s *side) string { s.look(name); return "" })
}

// expire ends a held lease. Then somebody looks, so that the queue moves on.
func (m *model) expire(t *rapid.T) {
	owner, name, process := m.owner(t)
	if _, ok := m.memory.held[owner]; !ok {
		t.Skip("it has nothing")
	}
	tried := rapid.Bool().Draw(t, "tried")
	m.both(t, func(s *side) string {
		s.forget(owner)
		s.expire(name)
		switch {
		case len(m.queue[name]) == 0:
		case tried: // by somebody who must not overtake
			grant, err := s.process[process].Acquire(context.Background(), m.request("stranger", name))
			return s.reply(name, grant, err)
		default:
			s.look(name)
		}
		return ""
	})
	m.passOn(t, name)
}

// drain serves the queues to the end, which compares their order.
func (m *model) drain() {
	for _, name := range modelNames {
		for m.holder[name] != "" {
			owner := m.holder[name]
			m.both(m.t, func(s *side) string {
				claim := s.held[owner]
				s.forget(owner)
				return verdict(s.process[0].Release(context.Background(), claim))
			})
			m.passOn(m.t, name)
		}
	}
	m.nothingElse(m.t)
	if n := len(m.redis.waits); n > 0 {
		m.t.Fatalf("%d waiters were never served", n)
	}
}

// granted takes in what an attempt brought and describes it.
func (s *side) granted(owner, name string, grant lease.Grant, err error) string {
	if err == nil {
		s.note(owner, name, grant.Token)
	}
	return s.reply(name, grant, err)
}

// full makes a lease that was handed over a full one, as a supervisor does, and describes it.
func (s *side) full(owner, name string, o outcome) string {
	if o.err != nil {
		return o.err.Error()
	}
	if o.grant.TTL > lease.ClaimTTL(modelTTL) && o.grant.TTL != modelTTL { // it may be less if the news was late
		return fmt.Sprintf("handed over for %v", o.grant.TTL)
	}
	s.note(owner, name, o.grant.Token)
	grant, err := s.process[0].Renew(context.Background(), s.held[owner], modelTTL)
	return s.reply(name, grant, err)
}

// note records a grant. A new token must be above all earlier ones.
func (s *side) note(owner, name string, token lease.Token) {
	tokens := s.grants[name]
	if n := len(tokens); n > 0 && token <= tokens[n-1] {
		if token == s.held[owner].Token {
			return // the same grant again
		}
		s.t.Fatalf("token %d of %q after %d", token, name, tokens[n-1])
	}
	s.grants[name] = append(tokens, token)
	s.forget(owner)
	s.held[owner] = lease.Claim{Name: name, Owner: owner, Token: token}
}

// forget makes owner's present claim an old one.
func (s *side) forget(owner string) {
	if claim, ok := s.held[owner]; ok {
		s.previous[owner] = append(s.previous[owner], claim)
		delete(s.held, owner)
	}
}

// reply describes what the backend said, tokens by their place in the order of grants.
func (s *side) reply(name string, grant lease.Grant, err error) string {
	var held *lease.HeldError
	switch {
	case errors.As(err, &held):
		return fmt.Sprintf("held by %q, grant %d", held.Holder.Label, slices.Index(s.grants[name], held.Holder.Token))
	case err != nil:
		return verdict(err)
	}
	return fmt.Sprintf("grant %d for %v", slices.Index(s.grants[name], grant.Token), grant.TTL)
}

// verdict is which of the ways of ending a call err is.
func verdict(err error) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, lease.ErrMissing):
		return "missing"
	case errors.Is(err, lease.ErrTaken):
		return "taken"
	}
	return err.Error()
}

package redistest

import (
	"math/rand/v2"
	"time"
)

// faults is the damage a proxy does at present. The zero value does none.
type faults struct {
	hole         bool
	delay        [2]time.Duration // by direction
	slowFraction float64
	slowBy       time.Duration
	dropReplies  int
	cuts         []*cutRule // armed and not matched yet, oldest first
}

// latency returns how long to hold back what arrives now in direction d.
func (f *faults) latency(d direction) time.Duration {
	hold := f.delay[d]
	if d == down && f.slowFraction > 0 && rand.Float64() < f.slowFraction {
		hold += f.slowBy
	}
	return hold
}

// Cut resets all current connections, on both sides. New ones are not affected. When it returns, they are closed.
func (p *Proxy) Cut() {
	for _, l := range p.all() {
		l.reset()
	}
}

// RefuseNew makes new connections fail as if nobody listened, until it is called with false. Current ones go on. It returns
// when it is so. If another process has taken the port meanwhile, the test fails.
func (p *Proxy) RefuseNew(refuse bool) {
	p.refusing.Lock()
	defer p.refusing.Unlock()
	if refuse {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.stopListeningLocked()
		return
	}
	if p.listens() {
		return
	}
	l, err := p.listenAgain()
	if err != nil {
		p.t.Errorf("redistest: listen again: %v", err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = l.Close()
		return
	}
	p.serveLocked(l)
}

// Delay holds back what arrives from now on, on its way to the server and to the client. It is a latency and does not limit
// the rate. Nothing overtakes within a connection, so a shorter delay acts when the earlier bytes are through.
func (p *Proxy) Delay(toServer, toClient time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults.delay = [2]time.Duration{up: toServer, down: toClient}
}

// DelayFraction holds back a fraction of the replies, between 0 and 1 and chosen at random, by d more than [Proxy.Delay] says.
// A reply is what arrives from the server at once. Later replies on the same connection wait behind it.
func (p *Proxy) DelayFraction(fraction float64, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults.slowFraction, p.faults.slowBy = fraction, d
}

// DropReplies loses the next n replies, each on a connection of its own: what has lost one reply delivers nothing more to its
// client, since the next one would be taken for the lost one. Requests still reach the server there. A reply is what
// arrives from the server at once, that to a new connection's HELLO included. A later call replaces the number, 0 ends it;
// connections already afflicted stay so.
func (p *Proxy) DropReplies(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults.dropReplies = n
}

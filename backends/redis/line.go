package redis

import (
	"container/list"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold/lease"
)

const (
	// pollEvery is how often a process with waiters on a name asks about it, at least.
	pollEvery = time.Second
	// keepPlaces is how long a process keeps its places without asking again: some polls may fail. The waiters of a process that died
	// are skipped after that.
	keepPlaces = 5 * time.Second
	// keepQueue is how long the keys of a queue outlive the last that asked or came.
	keepQueue = 4 * keepPlaces
	// afterExpiry is how long after the expiry of a lease the next poll comes, so that it finds the name free.
	afterExpiry = time.Millisecond
	// emptyAgain is when a name is polled again that was free although somebody waits: the poll had to leave off, or places were lost.
	emptyAgain = 10 * time.Millisecond
	// rebaseAfter is the age from which an instant is replaced that relates the server's clock to ours. It leaves time for messages
	// that crossed the reply.
	rebaseAfter = pollEvery / 4
)

// line is the part of a name's queue that waits in this process. While somebody is parked in it, and up to one poll longer,
// a goroutine of its own polls the name.
type line struct {
	// Fixed when made.
	b    *Backend
	name string
	keys keys
	wake chan struct{} // has capacity 1; tells the goroutine that due has come nearer, or that all is over

	// Guarded by b.mu.
	waiters map[string]*waiter // by owner; all that are inside Wait
	parked  *list.List         // of *waiter: those with a place in the queue, in order of arrival
	running bool               // a goroutine polls
	due     time.Time          // when it polls next
	base    [2]base            // the latest first
}

// base relates the server's clock to ours: a request that was sent at sent was answered when the server's clock showed server.
type base struct {
	sent   time.Time
	server int64 // µs; 0 if there is none
}

// waiter is one call of Wait.
type waiter struct {
	// Fixed when made.
	owner string
	ttl   time.Duration
	wake  chan struct{} // has capacity 1; tells that there is news

	// Guarded by Backend.mu.
	place *list.Element // in line.parked, or nil
	news  news
}

// news is what a waiter is told. Grant and err are final, and only one of them is ever set.
type news struct {
	grant *lease.Grant
	err   error
	again bool // its place may be gone: queue again
	held  *lease.Holder
}

// errSuperseded ends a Wait when another one for the same name and owner comes.
var errSuperseded = errors.New("redis: another call waits for the same owner")

// enter adds w to the line of name. From then on w can be handed the lease.
func (b *Backend) enter(name string, w *waiter) (*line, error) {
	k := b.keysOf(name)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, lease.ErrClosed
	}
	l := b.lines[k.record]
	if l == nil {
		l = &line{b: b, name: name, keys: k, wake: make(chan struct{}, 1), waiters: make(map[string]*waiter), parked: list.New()}
		b.lines[k.record] = l
	}
	if other := l.waiters[w.owner]; other != nil {
		l.tellLocked(other, news{err: errSuperseded})
		l.dropLocked(other)
	}
	l.waiters[w.owner] = w
	return l, nil
}

// park gives w, whose request was sent at sent and answered with t, its place in the line, and sees to it that the line is polled
// and the inbox open.
func (b *Backend) park(l *line, w *waiter, sent time.Time, t taken) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || l.waiters[w.owner] != w {
		return // told already
	}
	if t.fresh {
		l.againLocked()
	}
	if w.place == nil {
		w.place = l.parked.PushBack(w)
	}
	l.rebaseLocked(base{sent, t.now})
	l.dueLocked(t.holder.Remaining)
	if !l.running {
		l.running = true
		b.wg.Add(1)
		go l.run()
	}
	b.openInboxLocked()
}

// leave takes w out of the line and returns the grant that w was handed, if it was.
func (b *Backend) leave(l *line, w *waiter) *lease.Grant {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.dropLocked(w)
	if len(l.waiters) == 0 && !l.running && b.lines[l.keys.record] == l {
		delete(b.lines, l.keys.record)
	}
	return w.news.grant
}

// dropLocked removes w, unless that was done before.
func (l *line) dropLocked(w *waiter) {
	if l.waiters[w.owner] == w {
		delete(l.waiters, w.owner)
	}
	if w.place != nil {
		l.parked.Remove(w.place)
		w.place = nil
	}
}

// tellLocked adds to the news of w.
func (l *line) tellLocked(w *waiter, n news) {
	if w.news.grant == nil && w.news.err == nil {
		w.news.grant, w.news.err = n.grant, n.err
	}
	w.news.again = w.news.again || n.again
	if n.held != nil {
		w.news.held = n.held
	}
	poke(w.wake)
}

func (l *line) tellParkedLocked(n news) {
	for e := l.parked.Front(); e != nil; e = e.Next() {
		l.tellLocked(e.Value.(*waiter), n)
	}
}

// againLocked makes all that have a place queue again. Those whose place is not gone keep it.
func (l *line) againLocked() { l.tellParkedLocked(news{again: true}) }

// failLocked ends the wait of all.
func (l *line) failLocked(err error) {
	for _, w := range l.waiters {
		l.tellLocked(w, news{err: err})
	}
}

// requeue makes the waiters of a name queue again, if there are any here.
func (b *Backend) requeue(record string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.lines[record]; l != nil {
		l.againLocked()
	}
}

// deliver gives a handed-over lease to its owner. It was granted after sent on our clock. If the owner waits here no longer, nothing happens:
// it has the grant from elsewhere, or its caller withdraws it.
func (b *Backend) deliver(record string, h *handover, sent time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.lines[record]; l != nil {
		l.deliverLocked(h, sent)
	}
}

func (l *line) deliverLocked(h *handover, since time.Time) {
	w := l.waiters[h.owner]
	if w == nil {
		return
	}
	if !since.IsZero() && lease.TrustEnd(since, h.ttl).Sub(l.b.clk.Now()) < h.ttl/4 {
		l.tellLocked(w, news{again: true}) // late news: queueing again makes it a full lease, or tells that it is over
		return
	}
	l.tellLocked(w, news{grant: &lease.Grant{Token: h.token, TTL: h.ttl, ExpiresAt: h.expiresAt(), Since: since}})
	l.dropLocked(w)
}

// receive is deliver for news that was pushed: when it was granted on our clock follows from the server's.
func (b *Backend) receive(record string, h *handover, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.lines[record]
	if l == nil {
		return
	}
	if w := l.waiters[h.owner]; w == nil || h.ttl > w.ttl {
		return
	}
	l.deliverLocked(h, l.sinceLocked(h.at, now))
}

// sinceLocked returns an instant at or before which the server's clock showed at, or zero if there is none to be had.
//
// The request of a base had been answered when the server's clock showed base.server, and had been sent before. So what the server
// did later began at sent plus the server time between, or after that; clocks may differ by 1 %. If by that rule it began after
// we heard of it, the server's clock was stepped or is another server's, and says nothing.
func (l *line) sinceLocked(at int64, now time.Time) time.Time {
	for _, b := range l.base {
		if b.server == 0 || at < b.server {
			continue
		}
		since := b.sent.Add(time.Duration(at-b.server) * time.Microsecond / 100 * 99)
		if since.After(now) {
			return time.Time{}
		}
		return since
	}
	return time.Time{}
}

func (l *line) rebaseLocked(b base) {
	if l.base[0].server == 0 || b.sent.Sub(l.base[0].sent) >= rebaseAfter {
		l.base = [2]base{b, l.base[0]}
	}
}

// dueLocked plans the next poll: soon after the holder's lease ends, and in time for our places.
func (l *line) dueLocked(remaining time.Duration) {
	in := pollEvery
	if remaining > 0 {
		in = min(in, remaining+afterExpiry)
	}
	due := l.b.clk.Now().Add(in)
	if !l.running || due.Before(l.due) {
		l.due = due
		poke(l.wake)
	}
}

// run polls the name when it is due, until nobody waits.
func (l *line) run() {
	defer l.b.wg.Done()
	timer := l.b.clk.Timer(pollEvery)
	defer timer.Stop()
	for {
		now := l.b.clk.Now()
		l.b.mu.Lock()
		due := l.due
		over := l.b.closed || l.parked.Len() == 0 && !now.Before(due)
		if over {
			l.endLocked()
		}
		l.b.mu.Unlock()
		switch {
		case over:
			return
		case !now.Before(due):
			l.poll()
			continue
		}
		if !timer.Stop() {
			select {
			case <-timer.C:
			default:
			}
		}
		timer.Reset(due.Sub(now))
		select {
		case <-timer.C:
		case <-l.wake:
		}
	}
}

// endLocked gives up the goroutine, and the line if nobody is in it.
func (l *line) endLocked() {
	l.running = false
	if len(l.waiters) == 0 && l.b.lines[l.keys.record] == l {
		delete(l.b.lines, l.keys.record)
	}
}

// poll asks about the name once and tells the waiters what the server says. If it says nothing, their wait ends: the outcome is
// unknown, and each decides by its own ctx whether to try again.
func (l *line) poll() {
	first := l.first()
	if first == nil {
		return
	}
	sent := l.b.clk.Now()
	reply, err := l.b.ops.do(l.b.ctx, &op{
		script: pollScript,
		args:   pollScript.args(&l.keys, l.b.inboxID, keepPlaces.Milliseconds(), keepQueue.Milliseconds(), first.owner),
	}, callBound(first.ttl))
	var p polled
	if err == nil {
		p, err = readPolled(reply)
	}

	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	l.due = l.b.clk.Now().Add(pollEvery)
	if err != nil {
		l.tellParkedLocked(news{err: err})
		return
	}
	l.rebaseLocked(base{sent, p.now})
	l.dueLocked(p.holder.Remaining)
	if p.grant != nil {
		l.deliverLocked(p.grant, sent)
	}
	switch {
	case p.allLost:
		l.againLocked()
	case p.firstLost && first.place != nil:
		l.tellLocked(first, news{again: true})
	}
	if p.held {
		l.tellParkedLocked(news{held: &p.holder})
	} else {
		l.dueLocked(emptyAgain)
	}
}

// first returns who has waited longest.
func (l *line) first() *waiter {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	if front := l.parked.Front(); front != nil {
		return front.Value.(*waiter)
	}
	return nil
}

// poke wakes the one that listens to ch, now or when it looks next.
func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

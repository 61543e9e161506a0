package redis

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/lease"
)

const (
	// inboxTick is how often the inbox is looked after.
	inboxTick = time.Second
	// linger is for how many ticks without a waiter the subscription is kept.
	linger = 2
	// quiet is after how many ticks without a sign of life the server is asked for one, and after how many more the connection is
	// given up.
	quiet = 3
	// longestRetry bounds the pause between attempts to subscribe.
	longestRetry = time.Second
)

// inbox is the subscription through which all waiters of a Backend hear of leases that were handed to them. It takes one connection
// and two goroutines, from the first waiter that is parked to a moment after the last.
type inbox struct {
	b     *Backend
	came  bool        // a waiter was parked since the last tick; guarded by b.mu
	heard atomic.Bool // the server sent something since the last tick
}

// openInboxLocked makes sure that the inbox is open, or soon will be.
func (b *Backend) openInboxLocked() {
	if b.inbox == nil {
		b.inbox = &inbox{b: b}
		b.wg.Add(1)
		go b.inbox.run()
	}
	b.inbox.came = true
}

// run keeps a subscription until nobody has waited for a while or the Backend ends.
func (in *inbox) run() {
	defer in.b.wg.Done()
	for in.session() {
	}
}

// session is the life of one subscription. It reports whether there is to be another.
func (in *inbox) session() (again bool) {
	ctx, cancel := context.WithCancel(in.b.ctx)
	// Without a channel, Subscribe does not connect yet: the reader does, since that may take long.
	sub := in.b.client.Subscribe(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		in.read(ctx, sub)
	}()
	defer func() {
		cancel()
		_ = sub.Close() // it can only be closed already
		<-done
	}()

	ticker := in.b.clk.Ticker(inboxTick)
	defer ticker.Stop()
	for idle, silent := 0, 0; ; {
		select {
		case <-ctx.Done():
			return false
		case <-done:
			return false // refused
		case <-ticker.C:
		}
		if idle++; in.wanted() {
			idle = 0
		} else if idle >= linger && in.close() {
			return false
		}
		switch silent++; {
		case in.heard.Swap(false):
			silent = 0
		case silent == quiet:
			_ = sub.Ping(ctx) // a failure shows as silence
		case silent >= 2*quiet:
			return true
		}
	}
}

// wanted reports whether anybody is parked, or was since the last tick.
func (in *inbox) wanted() bool {
	in.b.mu.Lock()
	defer in.b.mu.Unlock()
	came := in.came
	in.came = false
	return came || in.b.parkedLocked()
}

// close gives the inbox up, unless somebody came just now.
func (in *inbox) close() bool {
	in.b.mu.Lock()
	defer in.b.mu.Unlock()
	if in.came {
		return false
	}
	in.b.inbox = nil
	return true
}

func (b *Backend) parkedLocked() bool {
	for _, l := range b.lines {
		if l.parked.Len() > 0 {
			return true
		}
	}
	return false
}

// read hands out what arrives until ctx ends or the server refuses. A connection that fails is replaced by the client.
func (in *inbox) read(ctx context.Context, sub *goredis.PubSub) {
	retry := 10 * time.Millisecond
	err := sub.Subscribe(ctx, in.b.channel())
	for {
		var msg any
		if err == nil {
			msg, err = sub.Receive(ctx)
		}
		if err == nil {
			retry = 10 * time.Millisecond
			in.heard.Store(true)
			in.handle(msg)
			continue
		}
		if ctx.Err() != nil {
			return
		}
		if err = classify(err); errors.Is(err, lease.ErrPermanent) {
			in.refused(err)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-in.b.clk.After(retry):
		}
		retry = min(2*retry, longestRetry)
		err = nil
	}
}

func (in *inbox) handle(msg any) {
	switch msg := msg.(type) {
	case *goredis.Subscription:
		in.b.pollAll() // what was published before is lost
	case *goredis.Message:
		if record, h, ok := readMessage(msg.Payload); ok {
			in.b.receive(record, &h, in.b.clk.Now())
		}
	}
}

// channel is what the scripts publish to.
func (b *Backend) channel() string { return b.prefix + "inbox:" + b.inboxID }

// pollAll makes all lines poll at once.
func (b *Backend) pollAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.lines {
		l.due = time.Time{}
		poke(l.wake)
	}
}

// refused gives the inbox up and ends the wait of all that count on it. The next one to be parked opens another.
func (in *inbox) refused(err error) {
	in.b.mu.Lock()
	defer in.b.mu.Unlock()
	in.b.inbox = nil
	for _, l := range in.b.lines {
		l.tellParkedLocked(news{err: err})
	}
}

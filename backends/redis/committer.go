package redis

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
	goredis "github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/ctxerr"
	"github.com/leasehold-go/leasehold/lease"
)

const (
	// lanes is how many requests may be on their way before operations are grouped. More would make smaller groups, and it is
	// the number of system calls that bounds both sides.
	lanes = 2
	// stuckAfter is how long an operation waits for a lane before it gets one of its own: the others may all stand on a
	// connection that is dead. Each one more holds a connection, so they are not opened at once.
	stuckAfter = 50 * time.Millisecond
	// maxGroup bounds what one pipeline holds.
	maxGroup = 256
	// maxSends is how often an operation is sent by us at most: as it is, with the script's source, and once more because it
	// shared a pipeline with one that must not be sent again. What the client resends does not count.
	maxSends = 3
)

// committer sends operations to Redis. One alone goes at once, as a command; those that come while all lanes are taken travel
// together in a pipeline (group commit). Callers never wait for a reply beyond their ctx; the request is then abandoned and ends,
// on a goroutine of the committer's, at the latest with the client's socket timeout.
type committer struct {
	// Fixed after New.
	client goredis.UniversalClient
	clk    clock.Clock
	closed chan struct{} // closed by close
	wg     sync.WaitGroup

	mu       sync.Mutex // guards what follows
	ending   bool
	pending  []*op
	busy     int  // lanes taken
	watching bool // a timer will look whether an operation waits too long; true whenever one had to wait
	strays   map[claimant]*op
}

// claimant is who gets something if an operation takes effect. While one whose caller has gone is under way, it is a stray: see
// settled.
type claimant struct{ record, owner string }

// op is one operation on its way.
type op struct {
	// Fixed before it is handed over.
	ctx    context.Context
	script *script
	args   []any // of EVALSHA
	once   bool  // must not be sent twice: the repetition's reply would tell nothing
	who    claimant

	// Owned by the lane that sends it; read by the caller after done.
	cmd   goredis.Cmder
	reply *goredis.Cmd
	done  chan struct{} // has one element when reply is final

	// Guarded by committer.mu.
	since time.Time // when it began to wait for a lane
	gone  bool      // its caller has stopped waiting
	group *group    // with which it is sent, unless alone
}

// group is what shares one request.
type group struct {
	ctx     context.Context
	cancel  context.CancelFunc // nil if ctx is that of the only operation
	ops     []*op              // not done yet
	one     [1]*op             // spares an allocation
	waiting int                // callers that still wait; guarded by committer.mu
}

// onceCmd is a command that the client never sends a second time.
type onceCmd struct{ *goredis.Cmd }

func (onceCmd) NoRetry() bool { return true }

func (c onceCmd) Clone() goredis.Cmder { return onceCmd{c.Cmd.Clone().(*goredis.Cmd)} }

// prepare makes a new command of args: a command is used once.
func (o *op) prepare(args []any) {
	o.reply = goredis.NewCmd(o.ctx, args...)
	o.cmd = o.reply
	if o.once {
		o.cmd = onceCmd{o.reply}
	}
}

// do sends o and returns the server's reply. It blocks until then, until ctx ends, or until bound is over. After the latter two
// the request may still be under way.
func (c *committer) do(ctx context.Context, o *op, bound time.Duration) (any, error) {
	if err := ctxerr.Of(ctx); err != nil {
		return nil, err
	}
	bounded := ctx
	if end, ok := ctx.Deadline(); !ok || end.Sub(c.clk.Now()) > bound {
		var cancel context.CancelFunc
		bounded, cancel = c.clk.WithTimeout(ctx, bound)
		defer cancel()
	}
	o.ctx, o.done = bounded, make(chan struct{}, 1)
	o.prepare(o.args)
	if !c.submit(o) {
		return nil, lease.ErrClosed
	}
	replied := false
	select {
	case <-o.done:
		replied = true
	case <-bounded.Done():
		replied = !c.abandon(o)
	case <-c.closed:
		c.abandon(o)
		return nil, lease.ErrClosed
	}
	var last error
	if replied {
		v, err := o.reply.Result()
		if isReply(err) || bounded.Err() == nil {
			return v, classify(err)
		}
		last = err // the client saw the end of the context, or failed at the same time
	}
	err := ctxerr.Of(ctx)
	if err == nil {
		err = &noReplyError{bound}
	}
	if last != nil && !isContextError(last) {
		err = fmt.Errorf("%w: %w", err, last)
	}
	return nil, err
}

// submit hands o to a lane, now or when one is free. It reports false when the committer is closed.
func (c *committer) submit(o *op) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending {
		return false
	}
	c.pending = append(c.pending, o)
	if c.busy < lanes {
		c.openLocked()
		return true
	}
	o.since = c.clk.Now()
	c.watchLocked()
	return true
}

// abandon is told that o's caller waits no longer. It reports false if the reply has come at the same time. What nobody waits for is
// not sent, or not sent again.
func (c *committer) abandon(o *op) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-o.done:
		return false
	default:
	}
	o.gone = true
	if o.who != (claimant{}) {
		c.strays[o.who] = o
	}
	if g := o.group; g != nil {
		if g.waiting--; g.waiting == 0 {
			g.cancel()
		}
	}
	return true
}

// finish gives o, whose reply is final, back to its caller.
func (c *committer) finish(o *op) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finishLocked(o)
}

func (c *committer) finishLocked(o *op) {
	if o.gone && c.strays[o.who] == o {
		delete(c.strays, o.who)
	}
	o.done <- struct{}{}
}

// settled waits until no request of who's is under way that nobody waits for, or until half of bound is over. What takes back who's
// place must not arrive before the request that asks for it, which may be on another connection.
func (c *committer) settled(ctx context.Context, who claimant, bound time.Duration) {
	c.mu.Lock()
	stray := c.strays[who]
	c.mu.Unlock()
	if stray == nil {
		return
	}
	if end, ok := ctx.Deadline(); ok {
		bound = min(bound, end.Sub(c.clk.Now()))
	}
	timer := c.clk.Timer(bound / 2)
	defer timer.Stop()
	select {
	case <-stray.done:
	case <-timer.C:
	case <-ctx.Done():
	case <-c.closed:
	}
}

// openLocked takes a lane for what is pending.
func (c *committer) openLocked() {
	c.busy++
	c.wg.Add(1)
	go c.lane()
}

// watchLocked makes sure that what is pending is sent even if no lane gets free.
func (c *committer) watchLocked() {
	if !c.watching {
		c.watching = true
		c.clk.AfterFunc(stuckAfter, c.relieve)
	}
}

func (c *committer) relieve() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watching = false
	if c.ending || len(c.pending) == 0 {
		return
	}
	if c.clk.Since(c.pending[0].since) >= stuckAfter {
		c.openLocked()
	}
	c.watchLocked()
}

// lane sends what is pending until nothing is.
func (c *committer) lane() {
	defer c.wg.Done()
	for {
		g := c.take()
		if g == nil {
			return
		}
		for n := 1; len(g.ops) > 0; n++ {
			c.send(g)
			g.settle(n == maxSends, c.finish)
		}
		if g.cancel != nil {
			g.cancel()
		}
	}
}

// take returns what to send next. When nothing is pending it returns nil, and the lane is given back.
func (c *committer) take() *group {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := &group{}
	g.ops = g.one[:0]
	n := 0
	for ; n < len(c.pending) && len(g.ops) < maxGroup; n++ {
		if o := c.pending[n]; o.gone {
			c.finishLocked(o)
		} else {
			g.ops = append(g.ops, o)
		}
	}
	c.pending = slices.Delete(c.pending, 0, n)
	switch g.waiting = len(g.ops); g.waiting {
	case 0:
		c.busy--
		return nil
	case 1:
		g.ctx = g.ops[0].ctx // ends when its caller stops waiting, or soon after
		return g
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	for _, o := range g.ops {
		o.group = g
	}
	return g
}

// send sends the operations in one request and returns when each has its reply or its error.
func (c *committer) send(g *group) {
	if len(g.ops) == 1 {
		_ = c.client.Process(g.ctx, g.ops[0].cmd) // the command keeps the error
		return
	}
	pipe := c.client.Pipeline()
	for _, o := range g.ops {
		_ = pipe.Process(g.ctx, o.cmd) // only queued
	}
	_, _ = pipe.Exec(g.ctx) // the commands keep their errors
}

// settle ends the operations that are done and keeps the others, prepared to be sent again: those whose script the server does
// not know, with its source; and those whose request failed and was not repeated by the client for the sake of another in it.
func (g *group) settle(last bool, finish func(*op)) {
	mixed := slices.ContainsFunc(g.ops, func(o *op) bool { return o.once })
	again := g.ops[:0]
	for _, o := range g.ops {
		err := o.reply.Err()
		switch {
		case last || err == nil:
			finish(o)
		case goredis.HasErrorPrefix(err, "NOSCRIPT") && o.reply.Name() == "evalsha":
			o.prepare(o.script.evalArgs(o.args))
			again = append(again, o)
		case mixed && !o.once && !isReply(err) && !isContextError(err):
			o.prepare(o.reply.Args())
			again = append(again, o)
		default:
			finish(o)
		}
	}
	g.ops = again
}

func (c *committer) init(client goredis.UniversalClient, clk clock.Clock) {
	c.client, c.clk, c.closed, c.strays = client, clk, make(chan struct{}), make(map[claimant]*op)
}

// close makes all callers return and waits for the requests on their way.
func (c *committer) close() {
	c.mu.Lock()
	if !c.ending {
		c.ending = true
		close(c.closed)
	}
	c.mu.Unlock()
	c.wg.Wait()
}

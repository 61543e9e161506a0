package redistest

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Proxy forwards TCP connections to a server and does damage to them on demand. All its methods may be called concurrently;
// each acts on the connections there are and on those to come.
//
// While the server cannot be reached, a connection to the proxy is accepted and then reset.
type Proxy struct {
	// Fixed after NewProxy.
	t      testing.TB
	addr   string
	target string
	ctx    context.Context // ends dialling
	cancel context.CancelFunc
	wg     sync.WaitGroup // Invariant: grows only under mu, while closed is false.

	// Held through a change between listening and refusing: who calls meanwhile waits for its end.
	refusing sync.Mutex

	// Guarded by mu.
	mu       sync.Mutex
	closed   bool
	listener net.Listener // nil while new connections are refused
	links    map[*link]struct{}
	faults   faults
	idleStop chan struct{} // closed to end the watch on idle connections; nil if there is none
	stats    Stats
}

// Stats counts what a proxy has seen.
type Stats struct {
	Open      int   // connections with clients now
	Total     int   // connections accepted so far
	BytesUp   int64 // delivered to the server
	BytesDown int64 // delivered to clients
	Swallowed int64 // read from either side and not to be delivered
}

// NewProxy starts a proxy on a free loopback port, in front of the server at target. It is closed when the test ends.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := listen()
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	p := &Proxy{t: t, addr: l.Addr().String(), target: target, links: make(map[*link]struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.mu.Lock()
	p.serveLocked(l)
	p.mu.Unlock()
	t.Cleanup(p.Close)
	return p
}

// Addr returns the host and port the proxy listens on.
func (p *Proxy) Addr() string { return p.addr }

// Via is an option for [Server.Client]: it makes the client connect through the proxy.
func (p *Proxy) Via(o *redis.Options) { o.Addr = p.addr }

// Stats returns the counts so far.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	for l := range p.links {
		if !l.clientGone {
			s.Open++
		}
	}
	return s
}

// Close resets all connections, stops listening, and returns when nothing of the proxy runs any more. It may be called twice.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.stopListeningLocked()
	p.watchIdleLocked(0)
	p.mu.Unlock()
	p.cancel()
	p.Cut()
	p.wg.Wait()
}

// serveLocked makes l the listener and accepts its connections until it is closed.
func (p *Proxy) serveLocked(l net.Listener) {
	p.listener = l
	p.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // only closing makes it fail
			}
			p.open(l, conn.(*net.TCPConn))
		}
	})
}

func (p *Proxy) stopListeningLocked() {
	if p.listener != nil {
		_ = p.listener.Close() // nothing to do about a failure
		p.listener = nil
	}
}

// listens reports whether there is no need for a new listener.
func (p *Proxy) listens() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.listener != nil || p.closed
}

// listenAgain opens the listener at the old address, which another process may hold for a moment.
func (p *Proxy) listenAgain() (net.Listener, error) {
	for end := time.Now().Add(time.Second); ; time.Sleep(pollInterval) {
		l, err := net.Listen("tcp", p.addr)
		if err == nil || time.Now().After(end) {
			return l, err
		}
	}
}

// open makes a link of a connection that l has accepted, unless l was closed meanwhile.
func (p *Proxy) open(l net.Listener, client *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != l {
		reset(client)
		return
	}
	k := newLink(p, client)
	k.lost = p.faults.hole
	p.links[k] = struct{}{}
	p.stats.Total++
	p.wg.Go(k.run)
}

// forget drops a link that has ended.
func (p *Proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// all returns the links there are.
func (p *Proxy) all() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.links))
}

// dial connects to the server.
func (p *Proxy) dial() (*net.TCPConn, error) {
	var d net.Dialer
	conn, err := d.DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		return nil, fmt.Errorf("dial the server: %w", err)
	}
	return conn.(*net.TCPConn), nil
}

// reset closes conn so that its peer sees a reset, not an orderly end.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0) // fails only if closed already
	_ = conn.Close()
}

package redistest

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

type direction int

const (
	up   direction = iota // from the client to the server
	down                  // from the server to the client
)

// queueLength is how many pieces may wait in one direction of a link before the proxy stops reading.
const queueLength = 256

// link is a client's connection and the one to the server that belongs to it. In each direction one goroutine reads and
// another writes, so that a delay postpones without slowing down.
type link struct {
	// Fixed after newLink.
	p      *Proxy
	client *net.TCPConn
	queues [2]chan piece // by direction; closed by the reader
	quit   chan struct{} // closed when the link is over

	// Owned by the upward reader.
	tail []byte // the end of what was read, where a match may have begun

	// Guarded by p.mu.
	server     *net.TCPConn // nil until it is dialled
	lastActive time.Time
	over       bool     // both connections are closed, or about to be
	lost       bool     // delivers nothing more in either direction
	mute       bool     // delivers nothing more to the client
	rule       *cutRule // cut when the server next says something; nil if not
	severed    bool     // cut by a rule: the client knows, the server is still to read what was sent
	clientGone bool
	serverGone bool
}

// piece is what was read at once.
type piece struct {
	data []byte
	due  time.Time // when to deliver it
}

func newLink(p *Proxy, client *net.TCPConn) *link {
	return &link{
		p:          p,
		client:     client,
		queues:     [2]chan piece{make(chan piece, queueLength), make(chan piece, queueLength)},
		quit:       make(chan struct{}),
		lastActive: time.Now(),
	}
}

// run carries the link from its first byte to its end.
func (l *link) run() {
	defer l.p.forget(l)
	if l.isLost() {
		l.swallow()
		return
	}
	server, err := l.p.dial()
	if err != nil {
		l.failDial()
		return
	}
	if !l.attach(server) {
		reset(server)
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { l.read(up, l.client) })
	wg.Go(func() { l.write(up, l.client, server) })
	wg.Go(func() { l.read(down, server) })
	wg.Go(func() { l.write(down, server, l.client) })
	wg.Wait()
	l.close()
}

// swallow reads from the client, whose connection has no other end, until it goes away.
func (l *link) swallow() {
	l.read(up, l.client)
	l.close()
}

// failDial resets the client's connection, unless a hole has opened that hides the failure.
func (l *link) failDial() {
	if l.fallIn() {
		l.swallow()
		return
	}
	l.reset()
}

// read takes in what src sends, until src ends or the link is over.
func (l *link) read(d direction, src *net.TCPConn) {
	defer close(l.queues[d])
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if c, ok := l.arrive(d, buf[:n]); ok {
				select {
				case l.queues[d] <- c:
				case <-l.quit:
					return
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			l.fail()
			return
		}
	}
}

// write delivers what was read when it is due, and then passes on that src has ended.
func (l *link) write(d direction, src, dst *net.TCPConn) {
	for c := range l.queues[d] {
		if !l.await(c.due) {
			return
		}
		if !l.depart(d, c) {
			continue
		}
		if _, err := dst.Write(c.data); err != nil {
			l.fail()
		}
	}
	l.finish(d, src, dst)
}

// await blocks until t, and reports false if the link is over before.
func (l *link) await(t time.Time) bool {
	wait := time.Until(t)
	if wait <= 0 {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.quit:
		return false
	}
}

// sever tells the client and nobody else that the connection is cut.
func (l *link) sever(rule *cutRule) {
	reset(l.client)
	close(rule.done)
}

// reset ends the link so that both sides see a reset. It may be called several times.
func (l *link) reset() { l.shut(reset) }

// close ends the link in good order. It may be called several times.
func (l *link) close() {
	l.shut(func(conn *net.TCPConn) { _ = conn.Close() }) // may have been closed before
}

func (l *link) shut(end func(*net.TCPConn)) {
	server, first := l.becomeOver()
	if !first {
		return
	}
	end(l.client)
	if server != nil {
		end(server)
	}
}

package redistest

import (
	"bytes"
	"net"
	"time"
)

// What becomes of bytes and ends of connections is decided here, each time under the proxy's mutex and without I/O, but for
// the closing that follows.

// arrive judges what was read in direction d. It returns the piece to deliver, and false if there is nothing to.
func (l *link) arrive(d direction, b []byte) (piece, bool) {
	now := time.Now()
	l.p.mu.Lock()
	l.lastActive = now
	rule, swallowed := l.judgeLocked(d, b)
	c := piece{due: now.Add(l.p.faults.latency(d))}
	l.p.mu.Unlock()
	if rule != nil {
		l.sever(rule)
	}
	if swallowed {
		return piece{}, false
	}
	c.data = bytes.Clone(b)
	return c, true
}

// judgeLocked reports whether b is swallowed, and returns the rule by which the client's connection is to be cut now, if any.
func (l *link) judgeLocked(d direction, b []byte) (cut *cutRule, swallowed bool) {
	f := &l.p.faults
	switch {
	case f.hole || l.lost:
		l.lost = true
	case d == up:
		l.matchLocked(b)
		return nil, false
	case l.rule != nil:
		cut, l.rule = l.rule, nil
		l.severed, l.clientGone = true, true
	case l.mute || l.severed:
	case f.dropReplies > 0:
		f.dropReplies--
		l.mute = true
	default:
		return nil, false
	}
	l.p.stats.Swallowed += int64(len(b))
	return cut, true
}

// matchLocked lets the first rule that matches wait for the server's answer.
func (l *link) matchLocked(b []byte) {
	if l.rule != nil {
		return
	}
	f := &l.p.faults
	if l.rule = f.takeCut(l.tail, b); l.rule != nil {
		l.tail = nil
		return
	}
	l.tail = f.remember(l.tail, b)
}

// depart reports whether a piece that is due may still be delivered: a hole may have opened while it waited.
func (l *link) depart(d direction, c piece) bool {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	n := int64(len(c.data))
	switch {
	case l.p.faults.hole || l.lost:
		l.lost = true
		l.p.stats.Swallowed += n
		return false
	case d == down && l.severed:
		l.p.stats.Swallowed += n
		return false
	case d == up:
		l.p.stats.BytesUp += n
	default:
		l.p.stats.BytesDown += n
	}
	return true
}

// fail is told that reading or writing has failed. It resets the link, unless the failure is our own doing or hidden by a
// hole; the writer then passes on the end.
func (l *link) fail() {
	l.p.mu.Lock()
	quiet := l.over || l.severed || l.p.faults.hole
	l.p.mu.Unlock()
	if !quiet {
		l.reset()
	}
}

// finish passes on to dst that src has ended, after all it sent.
func (l *link) finish(d direction, src, dst *net.TCPConn) {
	l.p.mu.Lock()
	hole, lost := l.p.faults.hole, l.lost
	if hole {
		l.lost = true
		l.clientGone = l.clientGone || d == up
		l.serverGone = l.serverGone || d == down
	}
	l.p.mu.Unlock()
	switch {
	case hole:
		_ = src.Close() // dst is not to know
	case lost:
		l.reset()
	default:
		_ = dst.CloseWrite() // fails only if dst has ended as well
	}
}

// attach adds the connection to the server, and reports false if the link is over.
func (l *link) attach(server *net.TCPConn) bool {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if l.over {
		return false
	}
	l.server = server
	return true
}

// fallIn makes the link silent for good if there is a hole, and reports whether there is one.
func (l *link) fallIn() bool {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	l.lost = l.p.faults.hole
	return l.lost
}

func (l *link) isLost() bool {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	return l.lost
}

// becomeOver returns the connection to the server, if there is one, and whether the link was not over before.
func (l *link) becomeOver() (server *net.TCPConn, first bool) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if l.over {
		return nil, false
	}
	l.over = true
	close(l.quit)
	return l.server, true
}

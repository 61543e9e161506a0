package redistest

// BlackHole makes the network swallow everything in silence, both ways, until it is called with false: bytes, and the news
// that either side has closed or died. New connections are accepted and swallowed as well, and the server hears nothing
// of them.
//
// After healing, connections on which nothing happened meanwhile go on as before. A connection that has lost something, or
// was made in the hole, stays silent for its whole life, since no TCP stream goes on after a gap; it ends when either side
// closes it, or by [Proxy.Cut]. A connection of which one side closed meanwhile is reset. So the server keeps the
// connection of a client that went away in the hole, with whatever it waits for there, until the hole heals.
func (p *Proxy) BlackHole(swallow bool) {
	for _, l := range p.setHole(swallow) {
		l.reset()
	}
}

// setHole returns the links of which one side has gone and the other should be told now.
func (p *Proxy) setHole(hole bool) []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults.hole = hole
	if hole {
		return nil
	}
	var halves []*link
	for l := range p.links {
		if l.clientGone || l.serverGone {
			halves = append(halves, l)
		}
	}
	return halves
}

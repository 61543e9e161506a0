package redistest

import "time"

// CutIdle resets each connection on which nothing was sent for d in either direction, as firewalls and servers with a timeout
// do. Connections idle already count. Zero or less ends it.
func (p *Proxy) CutIdle(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.watchIdleLocked(d)
	}
}

func (p *Proxy) watchIdleLocked(d time.Duration) {
	if p.idleStop != nil {
		close(p.idleStop)
		p.idleStop = nil
	}
	if d <= 0 {
		return
	}
	stop := make(chan struct{})
	p.idleStop = stop
	p.wg.Go(func() { p.watchIdle(d, stop) })
}

func (p *Proxy) watchIdle(d time.Duration, stop <-chan struct{}) {
	tick := time.NewTicker(max(d/8, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		for _, l := range p.idleSince(time.Now().Add(-d)) {
			l.reset()
		}
	}
}

func (p *Proxy) idleSince(t time.Time) []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	var idle []*link
	for l := range p.links {
		if l.lastActive.Before(t) {
			idle = append(idle, l)
		}
	}
	return idle
}

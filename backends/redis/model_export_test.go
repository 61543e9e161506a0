package redis

// Poll asks about name now, if somebody waits for it here, as its line does once a second.
func (b *Backend) Poll(name string) {
	k := b.keysOf(name)
	b.mu.Lock()
	l := b.lines[k.record]
	b.mu.Unlock()
	if l != nil {
		l.poll()
	}
}

package memory

// Delete removes name's record as a third party would: behind the holder's back, the queue untouched.
func (b *Backend) Delete(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clk.Now()
	if r := b.recordLocked(now, name); r != nil {
		r.expires = now
		b.recordLocked(now, name)
	}
}

// Len returns how many records there are.
func (b *Backend) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.records)
}

// Forget makes the backend forget everything, as a restart of a server would. Waiters are forgotten too: they ask again.
func (b *Backend) Forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.records)
	b.freed = freed{}
	b.last = 0
}

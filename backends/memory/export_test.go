package memory

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

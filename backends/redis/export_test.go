package redis

import "time"

// What the tests in redis_test reach.

// RecordKey returns the key of the record of name.
func (b *Backend) RecordKey(name string) string { return b.keysOf(name).record }

// Keys returns all keys of name.
func (b *Backend) Keys(name string) []string {
	k := b.keysOf(name)
	return []string{k.record, k.token, k.queue, k.places, k.processes}
}

// Channel returns the channel on which b hears of handovers.
func (b *Backend) Channel() string { return b.channel() }

// Parked returns how many wait for name in b.
func (b *Backend) Parked(name string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.lines[b.keysOf(name).record]; l != nil {
		return l.parked.Len()
	}
	return 0
}

// Quiet reports whether nothing runs in b: no line, no subscription, no request.
func (b *Backend) Quiet() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ops.mu.Lock()
	defer b.ops.mu.Unlock()
	return len(b.lines) == 0 && b.inbox == nil && b.ops.busy == 0
}

// KeepPlaces is how long a process keeps its places without a poll.
func KeepPlaces() time.Duration { return keepPlaces }

// Lanes is how many requests are under way before operations are grouped.
const Lanes = lanes

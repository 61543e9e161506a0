package memory

import (
	"time"

	"github.com/leasehold-go/leasehold/lease"
)

// minSweep is how many records there must be before expired ones are looked for.
const minSweep = 64

// sweepLocked removes the records of names that expired and that nobody asked for since. It runs when the number of records
// has doubled since the last time, so that an acquisition pays for two of them on average.
func (b *Backend) sweepLocked(now time.Time) {
	if len(b.records) < b.sweepAt {
		return
	}
	for name := range b.records {
		b.recordLocked(now, name)
	}
	b.sweepAt = max(minSweep, 2*len(b.records))
}

// maxFreed bounds what is remembered of names that are free: enough for every release that comes a little late.
const maxFreed = 1024

// freed remembers the last token of the names that became free most recently, so that a late release can be told whether
// anybody has held the name since.
type freed struct {
	tokens map[string]lease.Token
	order  []freedName // a ring once it is full
	next   int
}

type freedName struct {
	name  string
	token lease.Token
}

func (f *freed) add(name string, token lease.Token) {
	if f.tokens == nil {
		f.tokens = make(map[string]lease.Token)
	}
	f.tokens[name] = token
	if len(f.order) < maxFreed {
		f.order = append(f.order, freedName{name, token})
		return
	}
	if old := f.order[f.next]; f.tokens[old.name] == old.token {
		delete(f.tokens, old.name)
	}
	f.order[f.next] = freedName{name, token}
	f.next = (f.next + 1) % maxFreed
}

// last returns the last token of name, 0 if it is not remembered.
func (f *freed) last(name string) lease.Token { return f.tokens[name] }

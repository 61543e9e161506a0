package props

import (
	"fmt"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/lease"
)

// stamp says when something happened, in true time, and after what.
type stamp struct {
	at  time.Duration
	seq int
}

// before reports whether a happened before b: earlier, or at the same instant and noted first.
func (a stamp) before(b stamp) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

// history is all that happened in one case. What belongs to an event is noted before anything can follow from it.
type history struct {
	seq     int
	lines   []line
	calls   []*call
	holds   []*hold
	reqs    []*request
	applied []*applied
	grants  []grant
	users   []*userCall
	facts   []fact
	hooks   map[leaseKey][]hook
}

// line is an event as people read it.
type line struct {
	at     time.Duration
	who    string
	format string
	args   []any
}

// call is one call of Lock or TryLock.
type call struct {
	id     int
	w      *worker
	name   string
	opts   options
	kind   string // Lock, TryLock
	wait   time.Duration
	cancel func()
	lazy   bool // the caller asks for the handle's channels only after the end

	called, returned stamp
	calledLocal      time.Time
	over             bool // it has returned
	err              error
	nilHandle        bool
	hold             *hold
	owner            string
	reqs             []*request
	cancelled        bool // before it returned, or later
	ctxEnds          bool // the context given to it may have ended
	closed           bool // the Locker was closed before the call returned
}

// leaseKey names one grant: tokens differ within a name.
type leaseKey struct {
	name  string
	token lease.Token
}

func (h *hold) key() leaseKey { return leaseKey{h.name, h.token} }

// options is what a call was made with, the Locker's defaults included.
type options struct {
	ttl, every, maxHold time.Duration
	noRenewal, strict   bool
}

// hold is one handle in its user's hands.
type hold struct {
	*call
	h       *lease.Handle // nil once dropped
	control *lease.Control
	sig     signals
	token   lease.Token
	got     stamp
	trust   time.Time // as last seen while nothing was due

	counted  time.Time // the trust that trustCounted has found
	gotLocal time.Time
	gotTrust time.Duration // that was left then

	state   lease.State
	endErr  error
	reason  lease.Reason
	end     stamp     // seen to have ended
	endSeen time.Time // on the worker's clock
	expiry  time.Duration

	busy    int // user calls in flight
	dropped *stamp
}

// hook is an observer's call for a lease.
type hook struct {
	what string
	at   stamp
}

// userCall is a Renew or Release by a user.
type userCall struct {
	hold             *hold
	what             string
	ttl              time.Duration
	called, returned stamp
	over             bool
	err              error
}

// grant is a token that the store gave out.
type grant struct {
	name, owner string
	token       lease.Token
	at          stamp
}

// applied is one call that the store carried out, with name's record before and after it.
type applied struct {
	req           *request
	at            stamp
	now           time.Time // the store's clock
	before, after record
	had, has      bool
	err           error
}

// fact is a breach of an invariant that can only be seen at the moment it happens, on the product's own goroutine.
type fact struct {
	at        stamp
	invariant string
	text      string
}

func (h *history) String() string {
	var b strings.Builder
	const most = 400
	skip := max(0, len(h.lines)-most)
	if skip > 0 {
		fmt.Fprintf(&b, "… %d lines before\n", skip)
	}
	for _, l := range h.lines[skip:] {
		fmt.Fprintf(&b, "%14v  %-6s %s\n", l.at, l.who, fmt.Sprintf(l.format, l.args...))
	}
	return b.String()
}

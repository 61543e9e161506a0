package leasetest

import (
	"errors"
	"fmt"
	"time"
)

// ErrInjected is the error of calls that Faulty lets fail, unless their Fault says another. It is an unknown outcome: it matches
// no sentinel of package lease.
var ErrInjected = errors.New("leasetest: injected fault")

// Op is a method of a backend.
type Op uint8

// The methods that can be made to fail. Info cannot: it does no I/O.
const (
	OpAcquire Op = iota + 1
	OpRenew
	OpRelease
	OpWait
)

// String returns the method's name in lower case.
func (o Op) String() string {
	switch o {
	case OpAcquire:
		return "acquire"
	case OpRenew:
		return "renew"
	case OpRelease:
		return "release"
	case OpWait:
		return "wait"
	}
	return fmt.Sprintf("Op(%d)", uint8(o))
}

// Action is what becomes of a call.
type Action uint8

const (
	// Pass: request and reply arrive.
	Pass Action = iota
	// DropRequest: the request never arrives, and the call fails. With an Err it is a store that answers so.
	DropRequest
	// DropReply: the request takes effect, and the call fails all the same.
	DropReply
	// Duplicate: the request takes effect twice in a row, and the first reply arrives.
	Duplicate
	// Resend: the request takes effect twice in a row, and the second reply arrives: a client that resends unasked.
	Resend
	// Late: the request arrives after Before even if the caller has given up meanwhile. A Wait then stays in the queue
	// until it is granted or Close.
	Late
	// Hang: the request never arrives, and the call fails when its ctx ends.
	Hang
	// HangForever: the request never arrives, and the call ignores its ctx. It fails at Heal or Close.
	HangForever
)

// String returns the action's name in the code.
func (a Action) String() string {
	names := [...]string{"Pass", "DropRequest", "DropReply", "Duplicate", "Resend", "Late", "Hang", "HangForever"}
	if int(a) < len(names) {
		return names[a]
	}
	return fmt.Sprintf("Action(%d)", uint8(a))
}

// Fault is what happens to one call. The zero Fault is none.
type Fault struct {
	Action Action
	// Before is how long the request travels, After how long the reply does. A caller whose ctx ends meanwhile is gone: in
	// Before the request is never sent, except by Late; in After it has taken effect.
	Before, After time.Duration
	// Err is what a call fails with; nil stands for ErrInjected. A Hang that ends with its ctx fails with ctx's error.
	Err error
}

func (f Fault) err() error {
	if f.Err != nil {
		return f.Err
	}
	return ErrInjected
}

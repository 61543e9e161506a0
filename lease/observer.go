package lease

import "time"

// Event is what an Observer is told. Fields that do not apply to an event are zero.
type Event struct {
	// Name as the caller wrote it.
	Name string
	// Token of the lease; 0 before it is granted.
	Token Token
	// At is the instant of the event on the Locker's clock.
	At time.Time
	// Remaining is the trust that is left after the event.
	Remaining time.Duration
	// Margin is, for Renewed, the trust that was left when the renewal was confirmed.
	Margin time.Duration
	// Waited is how long a wait took, for Acquired and Refused.
	Waited time.Duration
	// Reason says why, for Lost.
	Reason Reason
	// Err is the backend's error for RenewFailing and Lost, the call's error for Refused.
	Err error
}

// Observer is a set of optional hooks for watching, never for deciding. A hook runs on the goroutine that made the event
// happen, after the state has changed and all signals of the handle have been given; it must not block, since renewal of that
// lease waits for it. A hook that panics is ignored.
type Observer struct {
	// Waiting: a call of Lock was told for the first time that the name is held, and goes on waiting.
	Waiting func(Event)
	// Acquired: a lease was granted.
	Acquired func(Event)
	// Refused: a call of Lock or TryLock ended without a lease.
	Refused func(Event)
	// Renewed: a renewal was confirmed.
	Renewed func(Event)
	// RenewFailing: a renewal was not confirmed, for the first time since the last that was.
	RenewFailing func(Event)
	// Recovered: a renewal was confirmed after at least one that was not. Renewed follows.
	Recovered func(Event)
	// Lost: a lease was lost.
	Lost func(Event)
	// Released: a handle was released. The delete is on its way meanwhile; its outcome is what Release returns.
	Released func(Event)
}

// Notify calls hook with e, if there is one, and swallows a panic of it: watching must not break what is watched.
func Notify(hook func(Event), e Event) {
	if hook == nil {
		return
	}
	defer func() { _ = recover() }()
	hook(e)
}

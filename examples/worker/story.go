package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/lease"
)

// story tells what happens, and keeps what the summary is made from. It decides nothing about the lease.
type story struct {
	// Fixed.
	lease  string // its name
	ledger *ledger
	began  time.Time

	mu       sync.Mutex // guards what follows
	out      io.Writer
	grants   []grant
	losses   []loss
	lateErr  error // what the ledger said to the late write
	pipeErr  error // what the pipeline returned that was cut off
	finished bool
}

// grant is what was true when a worker got the lease.
type grant struct {
	worker string
	handle *lease.Handle
	at     time.Time
	alone  bool // no earlier handle was valid
	told   bool // every earlier handle had ended, and given its signals
}

// loss is a worker that was told of it.
type loss struct {
	worker string
	at     time.Time
	err    error
}

func newStory(out io.Writer) *story {
	return &story{lease: "ledger/" + rand.Text()[:8], ledger: &ledger{}, began: time.Now(), out: out}
}

// say prints a line, with the time since the story began.
func (s *story) say(who, text string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sayLocked(time.Now(), who, text, args...)
}

func (s *story) sayLocked(at time.Time, who, text string, args ...any) {
	fmt.Fprintf(s.out, "%6.3f s  %-4s  %s\n", at.Sub(s.began).Seconds(), who, fmt.Sprintf(text, args...))
}

// granted notes that w got the lease, and returns how many times it has been granted.
func (s *story) granted(w *worker, h *lease.Handle) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := grant{worker: w.name, handle: h, at: time.Now(), alone: true, told: true}
	for _, earlier := range s.grants {
		g.alone = g.alone && !earlier.handle.Valid()
		select {
		case <-earlier.handle.Done():
		default:
			g.told = false
		}
	}
	s.grants = append(s.grants, g)
	s.sayLocked(g.at, w.name, "HAS THE LEASE, token %d", h.Token())
	return len(s.grants)
}

// lost notes that w was told that it lost the lease.
func (s *story) lost(w *worker, h *lease.Handle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := loss{worker: w.name, at: time.Now(), err: h.Err()}
	s.losses = append(s.losses, l)
	s.sayLocked(l.at, w.name, "is told that the lease is LOST, and stops (%s)", why(l.err))
}

// late notes what the ledger said to the late write.
func (s *story) late(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lateErr = err
}

// pipelineEnded notes what w's pipeline returned when it was cut off.
func (s *story) pipelineEnded(w *worker, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pipeErr = err
	s.sayLocked(time.Now(), w.name, "has no goroutine of the pipeline left")
}

// end says that nothing is left to do.
func (s *story) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = true
}

func (s *story) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.finished
}

// summary prints what was shown, and returns an error unless all of it was.
func (s *story) summary() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, "\nWhat was shown\n")
	missing := 0
	for _, c := range s.checksLocked() {
		mark := "ok"
		if !c.ok {
			mark = "FAIL"
			missing++
		}
		fmt.Fprintf(s.out, "  %-4s  %s\n", mark, c.claim)
	}
	if missing > 0 {
		return fmt.Errorf("%d of these things did not happen", missing)
	}
	return nil
}

type check struct {
	ok    bool
	claim string
}

func (s *story) checksLocked() []check {
	enough := len(s.grants) >= 4
	alone, rising, told := enough, enough, enough && len(s.losses) == 2
	for i, g := range s.grants {
		alone = alone && g.alone
		told = told && g.told
		rising = rising && (i == 0 || g.handle.Token() > s.grants[i-1].handle.Token())
	}
	var gaps []string
	for _, l := range s.losses {
		told = told && errors.Is(l.err, lease.ErrLost)
		gaps = append(gaps, s.gapLocked(l))
	}
	var stale *staleError
	return []check{
		{alone, fmt.Sprintf("One at a time: of %d grants none was made while an earlier holder's lease was valid.", len(s.grants))},
		{told, fmt.Sprintf("Told in time: Lost was closed before the next got the lease (%s).", strings.Join(gaps, "; "))},
		{rising, "Tokens rise: every grant has a higher one than the grant before."},
		{errors.As(s.lateErr, &stale), "Fencing: the ledger refused a late write by its token. The lease alone could not have stopped it."},
		{errors.Is(s.pipeErr, lease.ErrLost), "Pipelines: an errgroup on Handle.Context ended with the lease and returned why."},
		{s.finished, fmt.Sprintf("The work went on: %d orders, each booked once and in order.", s.ledger.next()-1)},
	}
}

// gapLocked says how long before the next grant a loss was told.
func (s *story) gapLocked(l loss) string {
	for _, g := range s.grants {
		if g.at.After(l.at) {
			return fmt.Sprintf("%s %v before %s", l.worker, g.at.Sub(l.at).Round(time.Millisecond), g.worker)
		}
	}
	return l.worker + ", and nobody got it"
}

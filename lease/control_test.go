package lease_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/leasehold-go/leasehold/lease"
)

// Every pair of a present state and an end that is asked for, with every kind of error.
func TestControl_End(t *testing.T) {
	ends := []struct {
		state lease.State
		err   error
		legal bool // from Held
	}{
		{lease.Released, lease.ErrReleased, true},
		{lease.Lost, lost(lease.Expired), true},
		{lease.Lost, lease.ErrLost, true},
		{lease.Released, lost(lease.Expired), false},
		{lease.Lost, lease.ErrReleased, false},
		{lease.Released, nil, false},
		{lease.Lost, nil, false},
		{lease.Held, nil, false},
		{lease.Held, lease.ErrReleased, false},
		{0, lease.ErrReleased, false},
	}
	for _, present := range []lease.State{lease.Held, lease.Released, lease.Lost} {
		for _, end := range ends {
			t.Run(fmt.Sprintf("%v/%v/%v", present, end.state, end.err), func(t *testing.T) {
				s, h := newHandle(context.Background(), clock.NewMock())
				switch present {
				case lease.Released:
					s.End(lease.Released, lease.ErrReleased)
				case lease.Lost:
					s.End(lease.Lost, lost(lease.Taken))
				}
				before := h.Err()
				panicked := func() (p any) {
					defer func() { p = recover() }()
					s.End(end.state, end.err)
					return nil
				}()
				legal := end.legal && present == lease.Held
				if (panicked == nil) != legal {
					t.Fatalf("panic %v, legal %v", panicked, legal)
				}
				if legal && (h.State() != end.state || h.Err() != end.err) || !legal && (h.State() != present || h.Err() != before) {
					t.Errorf("state %v, error %v", h.State(), h.Err())
				}
				if isClosed(h.Done()) != h.State().Terminal() || isClosed(h.Lost()) != (h.State() == lease.Lost) {
					t.Errorf("done %v, lost %v in state %v", isClosed(h.Done()), isClosed(h.Lost()), h.State())
				}
			})
		}
	}
}

// Signals that are asked for after the end are given at once, like those that were asked for before.
func TestControl_SignalsMadeLate(t *testing.T) {
	for _, early := range []bool{true, false} {
		s, h := newHandle(context.Background(), clock.NewMock())
		if early {
			h.Lost()
			h.Done()
			h.Context()
		}
		err := lost(lease.Missing)
		s.End(lease.Lost, err)
		if !isClosed(h.Lost()) || !isClosed(h.Done()) || context.Cause(h.Context()) != err || h.Context().Err() != context.Canceled {
			t.Errorf("asked for early %v: a signal is missing", early)
		}
	}
}

func TestControl_Extend(t *testing.T) {
	clk := clock.NewMock()
	s, h := newHandle(context.Background(), clk)
	at := func(d time.Duration) time.Time { return time.Unix(0, 0).Add(d) }
	s.Extend(at(20*time.Second), at(21*time.Second))
	if !h.TrustedUntil().Equal(at(20*time.Second)) || !h.ExpiresAt().Equal(at(21*time.Second)) {
		t.Errorf("until %v and %v", h.TrustedUntil(), h.ExpiresAt())
	}
	s.Extend(at(5*time.Second), at(6*time.Second))
	if !h.TrustedUntil().Equal(at(20*time.Second)) || !h.ExpiresAt().Equal(at(21*time.Second)) {
		t.Errorf("an end went back to %v and %v", h.TrustedUntil(), h.ExpiresAt())
	}
	s.End(lease.Lost, lost(lease.Expired))
	s.Extend(at(time.Hour), at(time.Hour))
	if h.Valid() || h.State() != lease.Lost || !h.TrustedUntil().Equal(at(20*time.Second)) {
		t.Error("what came late revived the lease")
	}
}

func TestControl_Values(t *testing.T) {
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, "value"))
	s, _ := newHandle(ctx, clock.NewMock())
	cancel()
	if v := s.Values(); v.Err() != nil || v.Value(key{}) != "value" {
		t.Error("want a context with the values of the parent that never ends")
	}
	if s.Name() != "x" || s.Token() != 7 || s.Abandoned() || !errors.Is(s.Err(), nil) {
		t.Errorf("name %q, token %d, abandoned %v, error %v", s.Name(), s.Token(), s.Abandoned(), s.Err())
	}
}

func TestNotify(t *testing.T) {
	lease.Notify(nil, lease.Event{})
	told := ""
	lease.Notify(func(e lease.Event) { told = e.Name }, lease.Event{Name: "x"})
	if told != "x" {
		t.Errorf("told of %q", told)
	}
	lease.Notify(func(lease.Event) { panic("swallowed") }, lease.Event{})
}

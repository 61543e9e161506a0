package alarm_test

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold/internal/alarm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func timers(clk *clock.Mock) int { return reflect.ValueOf(clk).Elem().FieldByName("timers").Len() }

// fired reports whether the alarm has fired since the last look.
func fired(a *alarm.Alarm) bool {
	select {
	case <-a.C():
		return true
	default:
		return false
	}
}

func inBubble(t *testing.T, f func(clk *clock.Mock, a *alarm.Alarm)) {
	synctest.Test(t, func(t *testing.T) {
		clk := clock.NewMock()
		a := alarm.New(clk)
		f(clk, &a)
		a.Stop()
		if n := timers(clk); n != 0 {
			t.Errorf("%d timers left", n)
		}
	})
}

func TestAlarm_FiresOnce(t *testing.T) {
	inBubble(t, func(clk *clock.Mock, a *alarm.Alarm) {
		if a.C() != nil {
			t.Error("a channel before Set")
		}
		a.Stop() // before Set: nothing
		a.Set(time.Second)
		clk.Add(time.Second - 1)
		if fired(a) {
			t.Error("1 ns too early")
		}
		clk.Add(1)
		if !fired(a) {
			t.Error("not on time")
		}
		clk.Add(time.Hour)
		if fired(a) {
			t.Error("twice")
		}
		a.Set(time.Second)
		clk.Add(time.Second)
		if !fired(a) {
			t.Error("not when set again")
		}
	})
}

func TestAlarm_SetReplaces(t *testing.T) {
	inBubble(t, func(clk *clock.Mock, a *alarm.Alarm) {
		a.Set(time.Second)
		a.Set(time.Minute)
		clk.Add(time.Second)
		if fired(a) {
			t.Error("the old time counts")
		}
		a.Set(time.Second)
		clk.Add(time.Second)
		if !fired(a) {
			t.Error("the new time does not")
		}
	})
}

// A tick that nobody read belongs to the time that was set before.
func TestAlarm_SetForgetsAnUnreadTick(t *testing.T) {
	inBubble(t, func(clk *clock.Mock, a *alarm.Alarm) {
		a.Set(time.Second)
		clk.Add(time.Second)
		a.Set(time.Second)
		if fired(a) {
			t.Error("an old tick")
		}
		clk.Add(time.Second - 1)
		if fired(a) {
			t.Error("too early")
		}
		clk.Add(1)
		if !fired(a) {
			t.Error("not on time")
		}
	})
}

func TestAlarm_Stop(t *testing.T) {
	inBubble(t, func(clk *clock.Mock, a *alarm.Alarm) {
		a.Set(time.Second)
		a.Stop()
		a.Stop()
		clk.Add(time.Minute)
		if fired(a) {
			t.Error("fired after Stop")
		}
		a.Set(time.Second)
		clk.Add(time.Second)
		a.Stop()
		if fired(a) {
			t.Error("an unread tick outlived Stop")
		}
	})
}

func TestAlarm_FarAway(t *testing.T) {
	inBubble(t, func(clk *clock.Mock, a *alarm.Alarm) {
		a.Set(1<<63 - 1)
		clk.Add(24*time.Hour - 1)
		if fired(a) {
			t.Error("too early")
		}
		clk.Add(1)
		if !fired(a) {
			t.Error("an owner who waits for long is to look once a day")
		}
	})
}

// Ticks that nobody reads never block the clock (C66): it holds its lock while it sends.
func TestC66_UnreadTickBlocksNoClock(t *testing.T) {
	inBubble(t, func(clk *clock.Mock, a *alarm.Alarm) {
		for range 100 {
			a.Set(time.Second)
			clk.Add(time.Second)
			clk.Now()
		}
	})
}

// The owner sets the alarm again and again, reading some of the ticks, while the clock moves (C66, and C65: the clock
// may have moved before the alarm is set). Neither may block the other, and the last setting counts.
func TestC66_SetWhileFiring(t *testing.T) {
	rounds := 10_000
	if testing.Short() {
		rounds = 1000
	}
	inBubble(t, func(clk *clock.Mock, a *alarm.Alarm) {
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
					clk.Add(1)
				}
			}
		}()
		for range rounds {
			a.Set(time.Duration(1 + rand.IntN(3)))
			switch rand.IntN(4) {
			case 0:
				<-a.C()
			case 1:
				clk.Now()
			case 2:
				time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond) // bubble time: lets the clock tick
			}
		}
		close(stop)
		<-stopped
		a.Set(time.Second)
		clk.Add(time.Second - 1)
		if fired(a) {
			t.Error("an old setting counts")
		}
		clk.Add(1)
		if !fired(a) {
			t.Error("the last setting does not count")
		}
	})
}

// On the real clock an unread tick is forgotten, too.
func TestAlarm_RealClock(t *testing.T) {
	a := alarm.New(clock.New())
	a.Set(time.Nanosecond)
	<-a.C()
	a.Set(time.Nanosecond)
	for start := time.Now(); time.Since(start) < time.Millisecond; {
	}
	a.Set(time.Hour)
	if fired(&a) {
		t.Error("an old tick")
	}
	a.Stop()
}

package redis

import (
	"errors"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/lease"
)

func FuzzReadMessage(f *testing.F) {
	f.Add("1700000000000000 owner 1700000000000000 3000 leasehold:{a b}:l")
	f.Add("1 w 1 0 k")
	f.Add("    ")
	f.Fuzz(func(t *testing.T, payload string) {
		key, h, ok := readMessage(payload)
		if !ok {
			return
		}
		if key == "" || h.owner == "" || h.token < 1 || h.token > lease.MaxToken || h.ttl < time.Millisecond || h.ttl > lease.MaxClaimTTL || h.at < 1 {
			t.Fatalf("%q gave %q %+v", payload, key, h)
		}
	})
}

func FuzzEscape(f *testing.F) {
	for _, s := range []string{"", "%", "%25", "}", "a{b}c", "%7D", "\x00"} {
		f.Add(s, s+"x")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		ea, eb := escape(a), escape(b)
		if ea == "" || strings.Contains(ea, "}") {
			t.Fatalf("%q gave %q", a, ea)
		}
		if a != b && ea == eb {
			t.Fatalf("%q and %q both gave %q", a, b, ea)
		}
	})
}

// Whatever a server or something between sends instead of our replies is an error, not a grant and not a panic.
func TestRead_Garbage(t *testing.T) {
	for _, v := range []any{
		nil, "", "OK", int64(0), int64(-2), true, 1.5, []any{}, []any{nil}, []any{int64(1), nil}, []any{int64(1), int64(2)}, []any{int64(2)},
		[]any{int64(1), int64(0), int64(5)}, []any{int64(1), int64(1 << 53), int64(5)}, []any{int64(1), int64(-1), int64(5)},
		[]any{int64(1), "7", int64(5)}, []any{"1", int64(7), int64(5)}, []any{int64(0), int64(1), int64(1), nil},
		[]any{int64(1), "o", int64(0), int64(1), int64(1)}, map[any]any{"a": "b"}, []any{"x", "y", "z", "u", "v"},
		[]any{int64(1), int64(0), int64(1), int64(1), "label", nil},
	} {
		if got, err := readTaken(v); err == nil && got.granted {
			t.Errorf("taken %v: %+v", v, got)
		}
		if got, err := readPolled(v); err == nil && got.grant != nil {
			t.Errorf("polled %v: %+v", v, got)
		}
		if got, err := readReleased(v); err == nil {
			t.Errorf("released %v: %+v", v, got)
		}
		if n, ok := v.(int64); !ok || n != 0 {
			if _, err := readRenewed(v); !errors.Is(err, lease.ErrPermanent) {
				t.Errorf("renewed %v: %v", v, err)
			}
		}
	}
}

func TestClassify(t *testing.T) {
	for text, want := range map[string]bool{
		"WRONGTYPE Operation against a key":                                    true,
		"NOPERM this user has no permissions":                                  true,
		"NOAUTH Authentication required.":                                      true,
		"WRONGPASS invalid username-password pair":                             true,
		"CROSSSLOT Keys in request don't hash to the same slot":                true,
		"ERR unknown command 'EVALSHA'":                                        true,
		"NOSCRIPT No matching script. Please use EVAL.":                        true,
		"ERR Error running script (call to f_1): @user_script:1: WRONGTYPE Op": true,
		"ERR The user executing the script can't run this command":             true,
		"READONLY You can't write against a read only replica.":                false,
		"LOADING Redis is loading the dataset in memory":                       false,
		"OOM command not allowed when used memory > 'maxmemory'.":              false,
		"BUSY Redis is busy running a script.":                                 false,
		"MISCONF Redis is configured to save RDB snapshots":                    false,
		"TRYAGAIN Multiple keys request during rehashing of slot":              false,
		"CLUSTERDOWN The cluster is down":                                      false,
		"MASTERDOWN Link with MASTER is down":                                  false,
		"ERR max number of clients reached":                                    false,
	} {
		err := serverError(text)
		got := classify(err)
		if errors.Is(got, lease.ErrPermanent) != want || !errors.Is(got, err) || errors.Is(got, lease.ErrHeld) {
			t.Errorf("%s: got %v", text, got)
		}
	}
	if err := errors.New("WRONGTYPE said by the network"); classify(err) != err || classify(nil) != nil {
		t.Error("only replies are classified")
	}
}

type serverError string

func (e serverError) Error() string { return string(e) }
func (e serverError) RedisError()   {}

// What is pushed is dated by the server's clock, never later than it began and never by a clock that cannot be right.
func TestLine_Since(t *testing.T) {
	t0 := time.Now()
	l := &line{}
	if !l.sinceLocked(5, t0).IsZero() {
		t.Error("without a base there is nothing to count from")
	}
	l.rebaseLocked(base{sent: t0, server: 1_000_000})
	l.rebaseLocked(base{sent: t0.Add(100 * time.Millisecond), server: 1_100_000}) // too soon after the first
	l.rebaseLocked(base{sent: t0.Add(time.Second), server: 2_000_000})
	at := func(d time.Duration) time.Time { return t0.Add(d) }
	for _, c := range []struct {
		name        string
		server      int64
		received    time.Time
		want        time.Time
		wantUnknown bool
	}{
		{name: "AfterTheLatest", server: 2_500_000, received: at(1600 * time.Millisecond), want: at(time.Second + 495*time.Millisecond)},
		{name: "CrossedTheLatest", server: 1_900_000, received: at(1600 * time.Millisecond), want: at(891 * time.Millisecond)},
		{name: "BeforeAll", server: 900_000, received: at(1600 * time.Millisecond), wantUnknown: true},
		{name: "ClockStepped", server: 60_000_000, received: at(1600 * time.Millisecond), wantUnknown: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := l.sinceLocked(c.server, c.received)
			if got.IsZero() != c.wantUnknown || !c.wantUnknown && !got.Equal(c.want) {
				t.Errorf("got %v, want %v", got.Sub(t0), c.want.Sub(t0))
			}
		})
	}
}

// The client takes the command for one that must not be sent again, also after it was cloned.
func TestOnceCmd(t *testing.T) {
	var cmd goredis.Cmder = onceCmd{goredis.NewCmd(t.Context(), "evalsha", "digest", 1, "key")}
	if !cmd.NoRetry() || !cmd.Clone().NoRetry() {
		t.Error("it would be sent again")
	}
}

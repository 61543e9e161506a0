package redistest_test

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestProxy_Forwards(t *testing.T) {
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	c := s.Client(plain, p.Via)
	key := s.Prefix()
	big := string(make([]byte, 1<<20))
	if err := c.Set(testContext(t), key, big, time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	got, err := c.Get(testContext(t), key).Result()
	if err != nil || got != big {
		t.Fatalf("GET gave %d bytes, %v; want %d", len(got), err, len(big))
	}

	st := p.Stats()
	if st.Open != 1 || st.Total != 1 || st.BytesUp < 1<<20 || st.BytesDown < 1<<20 || st.Swallowed != 0 {
		t.Errorf("stats %+v", st)
	}
	_ = c.Close()
	eventually(t, "close passed on", func() bool { return p.Stats().Open == 0 })
}

func TestProxy_DeliversWhatWasSentBeforeTheEnd(t *testing.T) {
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	p.Delay(20*time.Millisecond, 20*time.Millisecond)
	conn := dialRaw(t, p)
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn)
	if err != nil || string(got) != "+PONG\r\n" {
		t.Errorf("read %q, %v", got, err)
	}
}

func TestProxy_TargetDown(t *testing.T) {
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr())
	s.Kill()
	if err := s.Client(plain, p.Via).Ping(testContext(t)).Err(); err == nil || isTimeout(err) {
		t.Errorf("PING: %v, want a quick failure", err)
	}
	s.Restart()
	mustSet(t, s.Client(plain, p.Via), "k")
}

func TestProxy_Cut(t *testing.T) {
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	a, b := dialRaw(t, p), dialRaw(t, p)
	ping(t, a)
	ping(t, b)

	p.Cut()
	for _, conn := range []net.Conn{a, b} {
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read after Cut: %v, want %v", err, syscall.ECONNRESET)
		}
	}
	ping(t, dialRaw(t, p))
}

func TestProxy_RefuseNew(t *testing.T) {
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	old := dialRaw(t, p)
	ping(t, old)

	p.RefuseNew(true)
	p.RefuseNew(true)
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial: %v, want %v", err, syscall.ECONNREFUSED)
	}
	ping(t, old)
	p.RefuseNew(false)
	p.RefuseNew(false)
	ping(t, dialRaw(t, p))
}

func TestProxy_Delay(t *testing.T) {
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	conn := dialRaw(t, p)
	ping(t, conn)
	for _, tt := range []struct {
		name     string
		up, down time.Duration
	}{
		{"up", 60 * time.Millisecond, 0},
		{"down", 0, 60 * time.Millisecond},
		{"both", 30 * time.Millisecond, 30 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p.Delay(tt.up, tt.down)
			if got := pingTime(t, conn); got < 60*time.Millisecond {
				t.Errorf("answered after %v, want at least 60 ms", got)
			}
		})
	}
}

func TestProxy_DelayPostponesWithoutSlowingDown(t *testing.T) {
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	p.Delay(100*time.Millisecond, 0)
	conn := dialRaw(t, p)
	began := time.Now()
	const n = 10
	for range n {
		if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // so that each is read by itself
	}
	if _, err := io.ReadFull(conn, make([]byte, n*len("+PONG\r\n"))); err != nil {
		t.Fatal(err)
	}
	if got := time.Since(began); got < 100*time.Millisecond || got > 500*time.Millisecond {
		t.Errorf("all answered after %v, want about 100 ms", got)
	}
}

func TestProxy_DelayFraction(t *testing.T) {
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	conn := dialRaw(t, p)
	p.DelayFraction(0.5, 10*time.Millisecond)
	slow := 0
	const n = 60
	for range n {
		if pingTime(t, conn) >= 10*time.Millisecond {
			slow++
		}
	}
	if slow < n/6 || slow == n { // the odds against are below one in a million, but for a slow machine
		t.Errorf("%d of %d delayed, want about half", slow, n)
	}
}

func TestProxy_CutIdle(t *testing.T) {
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	busy, idle := dialRaw(t, p), dialRaw(t, p)
	ping(t, idle)
	p.CutIdle(400 * time.Millisecond)
	for end := time.Now().Add(600 * time.Millisecond); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		ping(t, busy)
	}
	if _, err := idle.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("idle connection: %v, want %v", err, syscall.ECONNRESET)
	}
	p.CutIdle(0)
	ping(t, busy)
}

func TestProxy_CloseTwice(t *testing.T) {
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	conn := dialRaw(t, p)
	ping(t, conn)
	p.Delay(time.Hour, time.Hour)
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		t.Fatal(err)
	}
	p.Close()
	p.Close()
	p.CutIdle(time.Second)
	p.RefuseNew(false)
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial: %v, want %v", err, syscall.ECONNREFUSED)
	}
	if st := p.Stats(); st.Open != 0 {
		t.Errorf("stats %+v", st)
	}
}

// dialRaw connects to the proxy without a client library in between.
func dialRaw(t *testing.T, p *redistest.Proxy) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

// ping fails the test unless conn gets its answer.
func ping(t *testing.T, conn net.Conn) {
	t.Helper()
	send(t, conn, "PING")
	expect(t, conn, "+PONG\r\n")
}

func pingTime(t *testing.T, conn net.Conn) time.Duration {
	t.Helper()
	began := time.Now()
	ping(t, conn)
	return time.Since(began)
}

func send(t *testing.T, conn net.Conn, command string) {
	t.Helper()
	if _, err := io.WriteString(conn, command+"\r\n"); err != nil {
		t.Fatalf("send %s: %v", command, err)
	}
}

func expect(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v; want %q", got[:n], err, want)
	}
}

// expectSilence fails the test if anything comes, be it the end of the connection.
func expectSilence(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(80 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	n, err := conn.Read(make([]byte, 1))
	if n != 0 || !isTimeout(err) {
		t.Errorf("read %d bytes, %v; want silence", n, err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
}

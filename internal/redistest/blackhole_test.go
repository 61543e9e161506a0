package redistest_test

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestProxy_BlackHole_SwallowsBothWays(t *testing.T) {
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	key := s.Prefix()
	asking, listening, untouched := dialRaw(t, p), dialRaw(t, p), dialRaw(t, p)
	ping(t, asking)
	ping(t, untouched)
	send(t, listening, "SUBSCRIBE "+key)
	expect(t, listening, "*3\r\n$9\r\nsubscribe\r\n")

	p.BlackHole(true)
	send(t, asking, "SET "+key+" v")
	late := dialRaw(t, p)
	send(t, late, "SET "+key+" v")
	if n, err := s.Client().Publish(testContext(t), key, "m").Result(); n != 1 || err != nil {
		t.Fatalf("PUBLISH reached %d, %v", n, err)
	}
	expectSilence(t, asking)
	expectSilence(t, late)
	if exists(t, s, key) {
		t.Error("a request came through the hole")
	}
	if p.Stats().Swallowed == 0 {
		t.Errorf("stats %+v: nothing swallowed", p.Stats())
	}

	p.BlackHole(false)
	_ = asking.Close()
	_ = late.Close()
	ping(t, untouched)
	ping(t, dialRaw(t, p))
	if exists(t, s, key) {
		t.Error("a swallowed request was delivered after healing")
	}
}

func TestProxy_BlackHole_ConnectionWithAGapStaysSilent(t *testing.T) {
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	conn := dialRaw(t, p)
	ping(t, conn)

	p.BlackHole(true)
	send(t, conn, "PING")
	eventually(t, "swallowed", func() bool { return p.Stats().Swallowed > 0 })
	p.BlackHole(false)
	send(t, conn, "PING")
	expectSilence(t, conn)
	p.Cut()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read after Cut: %v, want %v", err, syscall.ECONNRESET)
	}
}

func TestProxy_BlackHole_HidesWhatIsUnderWay(t *testing.T) {
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	conn := dialRaw(t, p)
	ping(t, conn)
	p.Delay(0, 50*time.Millisecond)
	send(t, conn, "PING")
	p.BlackHole(true)
	expectSilence(t, conn)
}

func TestProxy_BlackHole_ServerDoesNotLearnOfAClientGone(t *testing.T) {
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr())
	conn := dialRaw(t, p)
	send(t, conn, "CLIENT SETNAME gone")
	expect(t, conn, "+OK\r\n")
	connected := func() bool {
		list, err := s.Client().ClientList(testContext(t)).Result()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(list, "name=gone")
	}

	p.BlackHole(true)
	_ = conn.Close()
	eventually(t, "close seen by the proxy", func() bool { return p.Stats().Open == 0 })
	time.Sleep(30 * time.Millisecond)
	if !connected() {
		t.Error("the server learnt of the close through the hole")
	}
	p.BlackHole(false)
	eventually(t, "the server learns after healing", func() bool { return !connected() })
}

func TestProxy_BlackHole_ClientDoesNotLearnOfAServerGone(t *testing.T) {
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr())
	conn := dialRaw(t, p)
	ping(t, conn)

	p.BlackHole(true)
	s.Kill()
	expectSilence(t, conn)
	late := dialRaw(t, p)
	expectSilence(t, late)
	p.BlackHole(false)
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read after healing: %v, want %v", err, syscall.ECONNRESET)
	}
}

func TestProxy_BlackHole_ClientRecoversOnNewConnections(t *testing.T) {
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	c := s.Client(plain, p.Via)
	key := s.Prefix()
	mustSet(t, c, key+"a")
	for i := range 2 {
		p.BlackHole(true)
		if err := c.Set(testContext(t), fmt.Sprint(key, i), "v", 0).Err(); !isTimeout(err) {
			t.Errorf("SET in the hole: %v, want a timeout", err)
		}
		p.BlackHole(false)
		mustSet(t, c, key+"b")
	}
}

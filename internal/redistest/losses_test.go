package redistest_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestProxy_DropReplies(t *testing.T) {
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	c := s.Client(plain, p.Via)
	key := s.Prefix()
	mustSet(t, c, key+"a")

	p.DropReplies(1)
	if err := c.Set(testContext(t), key+"b", "v", 0).Err(); !isTimeout(err) {
		t.Errorf("SET: %v, want a timeout", err)
	}
	if !exists(t, s, key+"b") {
		t.Error("the request was lost, not the reply")
	}
	mustSet(t, c, key+"c")
}

func TestProxy_DropReplies_NothingFollowsALostReply(t *testing.T) {
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	a, b := dialRaw(t, p), dialRaw(t, p)
	ping(t, a)
	ping(t, b)
	key := s.Prefix()

	p.DropReplies(1)
	send(t, a, "SET "+key+"1 v")
	expectSilence(t, a)
	ping(t, b)
	send(t, a, "SET "+key+"2 v")
	expectSilence(t, a)
	if !exists(t, s, key+"1") || !exists(t, s, key+"2") {
		t.Error("a request did not reach the server")
	}
}

func TestProxy_CutAfterRequest(t *testing.T) {
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	c := s.Client(patient, p.Via)
	key := s.Prefix()
	mustSet(t, c, key+"other")

	for i := range 50 {
		victim := fmt.Sprint(key, "victim", i)
		done := p.CutAfterRequest(victim)
		mustSet(t, c, key+"other")
		if err := c.Set(testContext(t), victim, "v", 0).Err(); err == nil || isTimeout(err) {
			t.Fatalf("SET: %v, want a broken connection", err)
		}
		await(t, done)
		if !exists(t, s, victim) {
			t.Fatal("the server did not get the request")
		}
		mustSet(t, c, victim) // once only
	}
}

func TestProxy_CutAfterRequest_ClientThatRetriesSendsTwice(t *testing.T) {
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr())
	c := s.Client(p.Via)
	ctx := testContext(t)
	done := p.CutAfterRequest("counter")
	if err := c.Incr(ctx, "counter").Err(); err != nil {
		t.Fatal(err)
	}
	await(t, done)
	if got := s.CommandStats(ctx)["incr"]; got != 2 {
		t.Errorf("INCR ran %d times, want 2", got)
	}
}

func TestProxy_CutAfterRequest_MatchAcrossPieces(t *testing.T) {
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	conn := dialRaw(t, p)
	ping(t, conn)
	key := s.Prefix()
	done := p.CutAfterRequest("somewhere")
	for _, part := range []string{"SET " + key + " some", "whe", "re\r\n"} {
		if _, err := io.WriteString(conn, part); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond) // so that each is read by itself
	}
	await(t, done)
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read: %v, want %v", err, syscall.ECONNRESET)
	}
	if !exists(t, s, key) {
		t.Error("the server did not get the request")
	}
}

func TestProxy_CutAfterRequest_BlockingRequestIsCutWhenServed(t *testing.T) {
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	conn := dialRaw(t, p)
	key := s.Prefix()
	done := p.CutAfterRequest("BLPOP")
	send(t, conn, "BLPOP "+key+" 0")
	expectSilence(t, conn)
	select {
	case <-done:
		t.Fatal("cut before the server answered")
	default:
	}
	if err := s.Client().RPush(testContext(t), key, "v").Err(); err != nil {
		t.Fatal(err)
	}
	await(t, done)
	if exists(t, s, key) {
		t.Error("the element is still in the list")
	}
}

func TestProxy_CutAfterRequest_SeveralTakeTurns(t *testing.T) {
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	key := s.Prefix()
	first, second := p.CutAfterRequest(key), p.CutAfterRequest(strings.ToUpper("set ")+key)
	send(t, dialRaw(t, p), "SET "+key+" v")
	await(t, first)
	select {
	case <-second:
		t.Fatal("one request used both")
	case <-time.After(20 * time.Millisecond):
	}
	send(t, dialRaw(t, p), "SET "+key+" v")
	await(t, second)
}

func await(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatal("no cut")
	}
}

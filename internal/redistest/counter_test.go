package redistest_test

import (
	"reflect"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestCounter_RecordsAlsoWithinPipelines(t *testing.T) {
	s := redistest.Shared(t)
	c := s.Client()
	var counter redistest.Counter
	c.AddHook(&counter)
	ctx := testContext(t)
	key := s.Prefix()
	a, b := key+"a", key+"b"

	mustSet(t, c, a)
	if _, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Get(ctx, a)
		p.Eval(ctx, "return 1", []string{b}, "x")
		p.Eval(ctx, "return 1", nil, "x")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, b, "v", 0)
		return nil
	}); err != nil {
		t.Fatal(err)
	}

	type row struct {
		name, key string
		request   int
	}
	want := []row{
		{"set", a, 1},
		{"get", a, 2}, {"eval", b, 2}, {"eval", "", 2},
		{"multi", "", 3}, {"set", b, 3}, {"exec", "", 3},
	}
	var got []row
	for _, cmd := range counter.Commands() {
		got = append(got, row{cmd.Name, cmd.Key, cmd.Request})
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("recorded %v, want %v", got, want)
	}
	if counter.Total() != 7 || counter.Requests() != 3 || counter.Count("SET") != 2 || counter.Count("get") != 1 {
		t.Errorf("total %d, requests %d, SET %d, GET %d",
			counter.Total(), counter.Requests(), counter.Count("SET"), counter.Count("get"))
	}
	if counter.Dials() == 0 {
		t.Error("no dial recorded")
	}
	counter.Reset()
	if counter.Total() != 0 || counter.Requests() != 0 || counter.Dials() != 0 || len(counter.Commands()) != 0 {
		t.Error("Reset left something")
	}
}

func TestCounter_AgreesWithTheServer(t *testing.T) {
	s := redistest.Start(t)
	c := s.Client()
	var counter redistest.Counter
	c.AddHook(&counter)
	ctx := testContext(t)
	for range 5 {
		mustSet(t, c, "k")
	}
	if err := c.Get(ctx, "k").Err(); err != nil {
		t.Fatal(err)
	}
	stats := s.CommandStats(ctx)
	delete(stats, "hello") // one per connection, seen as a dial
	delete(stats, "ping")  // the server was asked whether it is up
	var total int64
	for _, n := range stats {
		total += n
	}
	if int64(counter.Total()) != total || stats["set"] != 5 {
		t.Errorf("counted %d, server ran %v", counter.Total(), stats)
	}
}

package redis_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/lease"
)

// What users are promised about requests, counted by the client and by the server.
func TestRequests_Uncontended(t *testing.T) {
	const rounds = 50
	ctx := t.Context()
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			server := redistest.Start(t)
			a := peerOf(t, server, "cost:", []func(*goredis.Options){func(o *goredis.Options) { o.Protocol = protocol }})
			a.warm()
			want := func(t *testing.T, requests int, f func()) {
				t.Helper()
				server.ResetStats(ctx)
				a.sent.Reset()
				f()
				if n := a.sent.Requests(); n != requests {
					t.Errorf("%d requests, want %d", n, requests)
				}
				if n := scripts(ctx, server); n != int64(requests) {
					t.Errorf("the server ran %d scripts, want %d", n, requests)
				}
			}
			t.Run("LockAndRelease", func(t *testing.T) {
				want(t, 2*rounds, func() {
					for range rounds {
						h, err := a.Lock(ctx, "n")
						if err != nil {
							t.Fatal(err)
						}
						a.unlock(h)
					}
				})
			})
			t.Run("TryLockAndRelease", func(t *testing.T) {
				want(t, 2*rounds, func() {
					for range rounds {
						a.unlock(a.lock("n"))
					}
				})
			})
			t.Run("Do", func(t *testing.T) {
				want(t, 2, func() {
					if err := a.Do(ctx, "n", func(context.Context, *lease.Handle) error { return nil }); err != nil {
						t.Fatal(err)
					}
				})
			})
			h := a.lock("n")
			t.Run("FailedTry", func(t *testing.T) {
				want(t, rounds, func() {
					for range rounds {
						_, err := a.TryLock(ctx, "n")
						wantErr(t, err, lease.ErrHeld)
					}
				})
			})
			t.Run("Renew", func(t *testing.T) {
				want(t, 1, func() { wantErr(t, h.Renew(ctx)) })
			})
			a.unlock(h)
		})
	}
}

// A hand-off is two requests: the waiter's and the release. What a process asks once a second however many wait is apart.
func TestRequests_HandOffBetweenLockers(t *testing.T) {
	const handOffs = 100
	ctx := t.Context()
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			server := redistest.Start(t)
			admin := server.Client()
			opts := []func(*goredis.Options){func(o *goredis.Options) { o.Protocol = protocol }}
			turn := []*peer{peerOf(t, server, "cost:", opts), peerOf(t, server, "cost:", opts)}
			turn[0].warm()

			// One full turn, so that both are subscribed.
			held := turn[0].lock("n")
			for i := range 2 {
				next := turn[(i+1)%2]
				w := next.queued(ctx, "n")
				eventually(t, func() bool {
					return admin.PubSubNumSub(ctx, next.backend.Channel()).Val()[next.backend.Channel()] == 1
				})
				turn[i%2].unlock(held)
				held = granted(t, w, P).h
			}
			turn[0].sent.Reset()
			turn[1].sent.Reset()
			server.ResetStats(ctx)
			begun := time.Now()
			for i := range handOffs {
				w := turn[(i+1)%2].queued(ctx, "n")
				turn[i%2].unlock(held)
				held = granted(t, w, P).h
			}
			took := time.Since(begun)
			stats := server.CommandStats(ctx)
			total := stats["evalsha"] + stats["eval"]
			byScript := make(map[any]int)
			for _, p := range turn {
				for _, c := range p.sent.Commands() {
					byScript[c.Args[1]]++
				}
			}
			// The script of a place in the queue and that of a release are run once each time.
			exact, others := 0, 0
			for _, n := range byScript {
				if n == handOffs {
					exact++
				} else {
					others += n
				}
			}
			polls := 2 * (1 + int(took/time.Second)) // each process, on each name, once a second
			if exact != 2 || others > polls || total > int64(2*handOffs+polls) {
				t.Errorf("scripts were run %v times in %v, %d in all; want two of them %d times, and up to %d polls", byScript, took, total,
					handOffs, polls)
			}
			if n := stats["publish"]; n != handOffs {
				t.Errorf("%d messages, want %d", n, handOffs)
			}
			turn[0].unlock(held)
		})
	}
}

package leasetest

import (
	"sync"

	"github.com/leasehold-go/leasehold/lease"
)

var concurrentCases = []testCase{
	{
		name:        "concurrent-acquire-has-one-winner",
		explanation: "Of any number of owners that try at once exactly one is granted the name, and all others are refused: neither two nor none.",
		run: func(k *kit) {
			const owners = 32
			leases, errs := make([]*held, owners), make([]error, owners)
			atOnce(owners, func(i int) { leases[i], errs[i] = k.try(k.name("x"), k.owner(), long) })
			var winner *held
			for i, h := range leases {
				switch {
				case errs[i] != nil:
					k.checkRefusal(errs[i])
				case winner != nil:
					k.Fatalf("two winners, tokens %v and %v", winner.claim.Token, h.claim.Token)
				default:
					winner = h
				}
			}
			if winner == nil {
				k.Fatalf("no winner among %d owners, and the name was free", owners)
			}
			k.wantHeld(winner)
			k.renewed(winner, long)
		},
	},
	{
		name:        "concurrent-repeats-are-one-grant",
		explanation: "Attempts of one owner that run at once, as a retry does whose first attempt is only slow, are one grant: all have the same token.",
		run: func(k *kit) {
			const attempts = 16
			owner := k.owner()
			leases, errs := make([]*held, attempts), make([]error, attempts)
			atOnce(attempts, func(i int) { leases[i], errs[i] = k.try(k.name("x"), owner, long) })
			for i, h := range leases {
				if errs[i] != nil {
					k.Fatalf("attempt %d of the same owner: got error %v, want the lease", i, errs[i])
				}
				if h.claim.Token != leases[0].claim.Token {
					k.Fatalf("two attempts of one owner got tokens %v and %v", leases[0].claim.Token, h.claim.Token)
				}
			}
			k.release(leases[0])
			k.wantFree(k.name("x"))
		},
	},
	{
		name:        "concurrent-renewals",
		explanation: "Renewals of one claim that run at once all succeed, and together do no more than one: the lease ends one TTL later.",
		run: func(k *kit) {
			h := k.acquire(k.name("x"), k.ttl)
			errs := make([]error, 16)
			atOnce(len(errs), func(i int) { _, errs[i] = k.backend.Renew(k.ctx, h.claim, k.ttl) })
			for _, err := range errs {
				if err != nil {
					k.unlessLate(h)
					k.Fatalf("Renew by the holder: got error %v, want nil", err)
				}
			}
			k.renewed(h, k.ttl)
			k.pastEnd(h)
			k.wantFree(k.name("x"))
		},
	},
	{
		name:        "concurrent-releases",
		explanation: "Releases of one claim that run at once are one release: nobody else came, so all return nil, and the name is free once.",
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			errs := make([]error, 16)
			atOnce(len(errs), func(i int) { errs[i] = k.backend.Release(k.ctx, h.claim) })
			for _, err := range errs {
				if err != nil {
					k.Errorf("Release by the holder: got error %v, want nil", err)
				}
			}
			k.wantHeld(k.acquire(k.name("x"), long))
		},
	},
	{
		name: "tries-never-overlap",
		explanation: "Owners that take turns as fast as they can, by tries and releases, never hold the name at the same time, and their tokens rise in the " +
			"order in which they held it.",
		run: func(k *kit) {
			var inside witness
			atOnce(8, func(int) {
				for range 25 {
					if h, err := k.try(k.name("x"), k.owner(), long); err == nil {
						inside.enter(h.claim.Token)
						inside.leave()
						_ = k.backend.Release(k.ctx, h.claim)
					}
				}
			})
			inside.check(k)
		},
	},
}

// atOnce calls f for 0 to n-1, each in a goroutine, and blocks until all have returned.
func atOnce(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

// witness stands for what a lease guards: it sees who is inside, and in which order they came.
type witness struct {
	mu       sync.Mutex
	inside   int
	overlaps int
	tokens   []lease.Token
}

func (w *witness) enter(t lease.Token) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inside++; w.inside > 1 {
		w.overlaps++
	}
	w.tokens = append(w.tokens, t)
}

func (w *witness) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inside--
}

// check reports what the witness has seen against the rules.
func (w *witness) check(k *kit) {
	k.Helper()
	if w.overlaps > 0 {
		k.Errorf("%d times two owners held the name at once", w.overlaps)
	}
	if len(w.tokens) == 0 {
		k.Errorf("nobody was ever granted the name")
	}
	for i := 1; i < len(w.tokens); i++ {
		if w.tokens[i] <= w.tokens[i-1] {
			k.Errorf("token %v was granted after token %v", w.tokens[i], w.tokens[i-1])
		}
	}
}

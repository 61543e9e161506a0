package leasetest

import (
	"math/rand/v2"
	"strconv"

	"github.com/leasehold-go/leasehold/lease"
)

var tokenCases = []testCase{
	{
		name:        "tokens-are-in-bounds",
		explanation: "Tokens are from 1 to 2^53-1, so that every language and every store compares them as plain numbers: a double holds no more.",
		run: func(k *kit) {
			for i := range 20 {
				h := k.acquire(k.name(strconv.Itoa(i)), long)
				if h.claim.Token < 1 || h.claim.Token > lease.MaxToken {
					k.Errorf("got token %v, want from 1 to %v", h.claim.Token, lease.MaxToken)
				}
				k.release(h)
			}
		},
	},
	{
		name: "tokens-rise-over-release",
		explanation: "Each grant of a name has a higher token than all before it, released or not: the storage that a lease guards refuses a late write " +
			"by that. A counter that goes with the record starts again and lets old writers in.",
		run: func(k *kit) {
			var last lease.Token
			for range 50 {
				h := k.acquire(k.name("x"), long)
				last = k.wantAbove(h, last)
				k.release(h)
			}
		},
	},
	{
		name:        "tokens-rise-over-expiry",
		explanation: "A lease that expires takes no token with it: the next grant's token is higher, though nobody has released anything.",
		run: func(k *kit) {
			var last lease.Token
			for range 3 {
				h := k.acquire(k.name("x"), k.ttl)
				last = k.wantAbove(h, last)
				k.pastEnd(h)
			}
		},
	},
	{
		name:        "tokens-rise-over-withdrawal",
		explanation: "A withdrawn grant counts: its owner may have written under its token before it gave up, and the next grant's must be higher.",
		run: func(k *kit) {
			var last lease.Token
			for range 10 {
				h := k.acquire(k.name("x"), long)
				last = k.wantAbove(h, last)
				k.withdraw(k.name("x"), h.claim.Owner)
			}
		},
	},
	{
		name: "token-is-constant",
		explanation: "A grant's token never changes: not by its renewals, not by repetition, not by tries of others. A token that rises with a renewal " +
			"would make the storage refuse its own holder.",
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			for range 5 {
				k.wantHeld(h)
				k.renewed(h, long) // fails if the token differs
				if got := k.acquireAs(k.name("x"), h.claim.Owner, long).claim.Token; got != h.claim.Token {
					k.Fatalf("repeated Acquire: got token %v, want %v", got, h.claim.Token)
				}
			}
		},
	},
	{
		name: "tokens-order-a-random-history",
		explanation: "Whatever several owners do to several names, in any order, the tokens of each name rise strictly in grant order, and only the " +
			"holder's claim is good.",
		run: func(k *kit) {
			rnd := rand.New(rand.NewPCG(1, 2))
			holders, last := map[string]*held{}, map[string]lease.Token{}
			for range 400 {
				name := k.name(strconv.Itoa(rnd.IntN(5)))
				h := holders[name]
				switch {
				case h == nil:
					h = k.acquire(name, long)
					last[name] = k.wantAbove(h, last[name])
					holders[name] = h
				case rnd.IntN(3) == 0:
					k.release(h)
					holders[name] = nil
				case rnd.IntN(2) == 0:
					k.renewed(h, long)
				default:
					k.wantHeld(h)
				}
			}
		},
	},
}

// wantAbove checks that h's token is above last, and returns it.
func (k *kit) wantAbove(h *held, last lease.Token) lease.Token {
	k.Helper()
	if h.claim.Token <= last {
		k.Fatalf("got token %v after token %v, want a higher one", h.claim.Token, last)
	}
	return h.claim.Token
}

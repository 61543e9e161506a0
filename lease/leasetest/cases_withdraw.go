package leasetest

var withdrawCases = []testCase{
	{
		name: "withdraw-frees-what-the-owner-holds",
		explanation: "Release with a zero token is for an owner whose Acquire ended unknown: it cannot know a token, and still must be able to give the " +
			"name back at once instead of leaving it busy for a TTL.",
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			k.withdraw(k.name("x"), h.claim.Owner)
			k.wantFree(k.name("x"))
		},
	},
	{
		name: "withdraw-of-nothing-is-nil",
		explanation: "The attempt that ended unknown may never have arrived. Having nothing to give back is no error, on a name that nobody ever had, " +
			"after a release, and when done twice.",
		run: func(k *kit) {
			k.withdraw(k.name("never"), k.owner())
			h := k.acquire(k.name("x"), long)
			k.release(h)
			k.withdraw(k.name("x"), h.claim.Owner)
			k.withdraw(k.name("x"), h.claim.Owner)
			k.wantFree(k.name("x"))
		},
	},
	{
		name: "withdraw-spares-others",
		explanation: "A withdrawal gives back what its owner has and nothing else: when another holds the name it is nil, and the holder keeps its lease " +
			"and its expiry.",
		run: func(k *kit) {
			h := k.acquire(k.name("x"), k.ttl)
			k.withdraw(k.name("x"), k.owner())
			k.wantHeld(h)
			k.pastEnd(h)
			next := k.acquire(k.name("x"), long)
			k.withdraw(k.name("x"), h.claim.Owner) // it had the name once
			k.wantHeld(next)
		},
	},
	{
		name:        "withdrawn-owner-may-come-back",
		explanation: "A withdrawal ends what was, not the owner: its next attempt is an attempt like any other, under a higher token.",
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			k.withdraw(k.name("x"), h.claim.Owner)
			again := k.acquireAs(k.name("x"), h.claim.Owner, long)
			if again.claim.Token <= h.claim.Token {
				k.Errorf("Acquire after a withdrawal: got token %v, want above %v", again.claim.Token, h.claim.Token)
			}
			k.wantHeld(again)
		},
	},
}

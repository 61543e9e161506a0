package leasetest

import "slices"

// testCase is one rule of the contract.
type testCase struct {
	name string
	// explanation says what the rule is, and what goes wrong without it. It is printed when the case fails.
	explanation string
	needs       needs
	run         func(k *kit)
}

// needs is the set of what a case cannot do without.
type needs uint8

const (
	queue      needs = 1 << iota // the backend is a lease.Queuer
	second                       // WithSecond
	deletion                     // WithDelete
	forgetting                   // WithForget
)

func (n needs) has(one needs) bool { return n&one != 0 }

// options returns why a case with these needs cannot run with s, or "".
func (n needs) options(s settings) string {
	switch {
	case n.has(second) && s.second == nil:
		return "needs leasetest.WithSecond: another client of the same store"
	case n.has(deletion) && s.remove == nil:
		return "needs leasetest.WithDelete: a third party that deletes the record"
	case n.has(forgetting) && s.forget == nil:
		return "needs leasetest.WithForget: a store that forgets everything"
	}
	return ""
}

// allCases returns all cases in the order of a lease's life. A later part may rely on what an earlier one has shown.
func allCases() []testCase {
	return slices.Concat(
		requestCases, nameCases, acquireCases, heldCases, expiryCases, renewCases, releaseCases, withdrawCases, tokenCases,
		concurrentCases, ambiguousCases, storeCases,
		queueOrderCases, queueHandoverCases, queueLeaveCases, queueStoreCases,
	)
}

// Package leasetest checks that a lease.Backend keeps its contract, and wraps backends so that they fail on purpose. It is for
// authors of backends and for tests of what is built upon them.
//
// [Run] is the conformance kit. One call in a test runs every case against a backend; a case that fails prints the rule that
// it guards and why it is one.
//
//	func TestConformance(t *testing.T) {
//		leasetest.Run(t, func(t *testing.T) lease.Backend { return mystore.New(connect(t)) })
//	}
//
// [Faulty] wraps any backend so that requests and replies are delayed, lost or doubled, by plan.
//
// # Time
//
// The kit takes time from one of three sources:
//
//   - by default it sleeps, with short leases and generous slack, as a real server needs. A slow machine makes it slower or
//     makes it skip a case rather than fail: "still held" is asserted only while a lease cannot have ended, "over" only when it must have;
//   - [WithBubble] runs each case in a testing/synctest bubble, where sleeping takes no time and every instant is exact. It suits
//     backends within the process that take time from package time or from clock.New();
//   - [WithAdvance] moves a fake clock that the backend was built with, such as a clock.Mock. It works in a bubble and outside.
//
// With the last two, edges are checked to the nanosecond.
//
// # What a case needs
//
// Some cases need more than the contract offers: a third party that deletes a record ([WithDelete]), a store that forgets
// ([WithForget]), another client of the same store ([WithSecond]). Without the option they are skipped, saying so. Cases about
// waiting in line are skipped for a backend that is no lease.Queuer.
//
// # Guarantees
//
//   - Names and owners are random, so a store that is shared with others or full of leftovers disturbs nothing. Only [WithForget]
//     reaches beyond the kit's own names.
//   - Nothing of the kit runs when a case has ended, and cases run one after the other.
//
// # Not guaranteed
//
//   - That a backend which passes is free of races: run it with -race, and against a network that fails.
package leasetest

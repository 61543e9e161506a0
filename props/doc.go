// Package props holds the properties of the whole: a deterministic simulation of several workers that lock names on one store,
// over a network that loses, delays and repeats, each with a clock of its own rate. It has test code only, and only tests may import
// what it uses: rapid adds flags to the command line.
//
// # The simulation
//
// A case runs in a testing/synctest bubble in which the bubble's own time stands still. All time is made by sim.runTo. The store
// has a clock.Mock that shows true time, each worker one that runs at 0.99 to 1.01 of it. Time moves from event to event: to the
// earliest timer of any clock or message of the network, all clocks at once, to the nanosecond, and whatever runs then
// runs until every goroutine is blocked before anything else happens. So there is no slice of time within which order
// would be unknown. What is due at one instant happens in an order that the case draws. The only rounding is that of a clock that is
// fast: it may show one nanosecond more than a timer asked for.
//
// A goroutine that slept on the real clock would never wake up in such a bubble: its call would not return, its lease not be lost
// on time, and an invariant would say so.
//
// A paused worker's goroutines get nothing to run on: its clock is not moved and what is sent to it waits. When it goes on, its clock
// shows the present at once, as after a stopped process, and all timers that ran out meanwhile fire at that instant, not at the
// past ones that clock.Mock would show. This is why the clocks are moved by hand (clock_test.go) and not by Mock.Add.
//
// Between a worker and the store stands a link (link_test.go). Every call is a request that travels, is applied by the one
// goroutine that moves time, and is answered: each of these may be late, lost or repeated, as drawn. leasetest.Faulty cannot be
// used for this: in it a call belongs to its caller's goroutine, which a pause would have to stop.
//
// # Invariants
//
// Everything that happens is written to a history. The invariants are named functions, in invariants_test.go: those of all states of
// rest, checked whenever every goroutine is blocked, and those of the whole history, checked at the end of a case.
//
// A breach is printed with its name and the whole history. To run it again: -rapid.seed, or the file that rapid writes to
// testdata; -rapid.steps says how many actions a case has on average, 50 unless given. Which of several goroutines that are ready runs first
// is the scheduler's choice, so that a rare breach may need a few tries.
//
// # Does it bite?
//
// TestMutants builds the product with one known mistake at a time and expects a named invariant to find each.
package props

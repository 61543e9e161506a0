// Package memory is the embedded backend: leases in a map of this process. It is the default for examples, tests and programs
// of one process, and the reference for what a backend does.
//
// It excludes nobody outside the process that made it; Info says so, and mutex.RequireShared refuses it.
//
// # Guarantees
//
// All that lease.Backend and lease.Queuer promise: FIFO waiting, hand-off by the release that frees a name, tokens that rise
// for as long as the process lives. Expiry is judged on the injected clock, at the instant that anybody looks.
//
// # Concurrency
//
// One mutex guards everything and is never held while waiting. The package starts no goroutine.
package memory

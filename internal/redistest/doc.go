// Package redistest gives tests a real Redis server and a network that fails on demand.
//
//   - [Start] runs a redis-server of the test's own; [Shared] gives one that all tests of a package share.
//   - [NewProxy] puts a TCP proxy in front of a server: it cuts, delays, swallows and loses what passes.
//   - [Counter] is a go-redis hook that records which commands a client was asked to send.
//
// A package that uses Shared, or that checks for leaked goroutines, has this TestMain:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Main(m)) }
//
// # Guarantees
//
// Whatever a test starts here ends before the test does: processes are gone, ports closed, goroutines finished. A test
// binary that panics or is killed leaves no server behind on Linux, where the kernel kills it with its parent.
//
// The proxy behaves like a TCP network: a connection delivers its bytes in order and without gaps, until it delivers
// nothing more. No fault makes a client read a reply that belongs to another request.
//
// # Not guaranteed
//
// Faults take effect on bytes that have not left the proxy. What it handed to the kernel before the call may still arrive.
// On systems other than Linux a killed test binary leaves its servers running.
//
// # Concurrency
//
// A Proxy and a Counter may be used from any goroutine. The methods of Server report failure through the test's Fatal: call
// them from the test's goroutine.
//
// Everything here lives in real time and does real I/O: keep it out of synctest bubbles.
package redistest

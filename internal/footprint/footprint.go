// Package footprint measures what a program holds on to, for tests.
package footprint

import "runtime"

// Use is what is held at a moment: goroutines, and bytes of heap and of goroutine stacks.
type Use struct {
	Goroutines  int
	Heap, Stack int64
}

// Now collects garbage and returns what is left. It stops the world, several times.
func Now() Use {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return Use{runtime.NumGoroutine(), int64(m.HeapAlloc), int64(m.StackInuse)}
}

//go:build race

package mutex_test

// raceEnabled: the race detector multiplies memory.
const raceEnabled = true

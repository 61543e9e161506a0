//go:build race

package redis_test

// underRace: the race detector multiplies memory.
const underRace = true

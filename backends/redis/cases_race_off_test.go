//go:build !race

package redis_test

const underRace = false

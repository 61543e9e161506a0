//go:build race

package footprint

// UnderRace: the race detector multiplies memory, so that figures mean nothing.
const UnderRace = true

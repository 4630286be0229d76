//go:build race

package audio

// underRace reports whether the race detector slows the tests.
const underRace = true

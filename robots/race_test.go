//go:build race

package robots_test

const raceEnabled = true

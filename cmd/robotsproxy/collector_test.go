package main

import "testing"

func TestGCPercent(t *testing.T) {
	for live, want := range map[uint64]int{
		0: 200, 8 << 20: 200, 12 << 20: 130, 16 << 20: 100, 32 << 20: 100, 64 << 20: 100, 80 << 20: 80, 128 << 20: 50, 160 << 20: 40, 10 << 30: 40,
	} {
		if got := gcPercent(live); got != want {
			t.Errorf("gcPercent(%d) = %d, want %d", live, got, want)
		}
	}
}

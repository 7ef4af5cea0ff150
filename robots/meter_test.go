package robots

import (
	"math"
	"testing"
	"time"
)

func TestMeter(t *testing.T) {
	var m meter
	begin := time.Unix(0, 0)
	for _, row := range []struct {
		at     time.Duration
		events int
		want   float64 // events in a second
	}{
		{0, 0, 0},
		{0, 5, 5}, // in less than a second
		{4 * time.Second, 15, 5},
		{10 * time.Second, 0, 2},
		{15 * time.Second, 30, 4}, // half of the first span, and the second
		{25 * time.Second, 0, 1.5},
		{time.Hour, 0, 0},
		{time.Hour, 1, 1},
	} {
		for range row.events {
			m.add(begin.Add(row.at))
		}
		if got := m.rate(begin.Add(row.at)); math.Abs(got-row.want) > 1e-9 {
			t.Errorf("after %v: %v events in a second, want %v", row.at, got, row.want)
		}
	}
}

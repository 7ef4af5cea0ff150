package ratelimit

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestPlaceThatIsLate has clients that bear no wait come back when they were told, to a place that is late since a request
// took longer than foreseen: a moment is waited for, and more is not.
func TestPlaceThatIsLate(t *testing.T) {
	for _, test := range []struct {
		name string
		late time.Duration
		held bool
	}{
		{"by a moment", punctual, true},
		{"by more", punctual + 1, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, Options{})
				r := Request{Key: host, Client: "a", Delay: 10 * time.Second}
				send(t, l, r, 0)
				turnedAway(t, l, r)
				other := Request{Key: host, Client: "b", MaxWait: time.Minute, Ride: true, Delay: r.Delay}
				time.Sleep(test.late)
				send(t, l, other, 0) // from which the Delay counts
				time.Sleep(r.Delay - test.late)
				if !test.held {
					turnedAway(t, l, r)
					return
				}
				if got := send(t, l, r, 0); got != test.late {
					t.Errorf("held for %v, want %v", got, test.late)
				}
			})
		})
	}
}

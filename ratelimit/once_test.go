package ratelimit

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestOnce checks that a request with Once makes no reservation, and does not claim one of its client.
func TestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		ask := func(wait time.Duration, once bool) (Grant, error) {
			return l.Acquire(t.Context(), Request{Key: "a.example", Client: "news", Delay: 10 * time.Second, MaxWait: wait, Once: once})
		}
		take := func(wait time.Duration, once bool) {
			t.Helper()
			g, err := ask(wait, once)
			if err != nil {
				t.Fatal(err)
			}
			g.Release(Outcome{Status: 200})
		}
		take(0, false)
		var wait *WaitError
		if _, err := ask(time.Second, true); !errors.As(err, &wait) || wait.Wait != 10*time.Second {
			t.Errorf("Acquire = %v, want a wait of 10s", err)
		}
		if got := l.Stats().Reserved; got != 0 {
			t.Errorf("%d reservations for a request with Once", got)
		}
		if _, err := ask(time.Second, false); !errors.As(err, &wait) {
			t.Fatalf("Acquire = %v, want a WaitError", err)
		}
		time.Sleep(10 * time.Second) // now the reservation is due
		var both sync.WaitGroup
		both.Go(func() {
			begin := time.Now()
			take(time.Minute, true)
			if got := time.Since(begin); got < 10*time.Second {
				t.Errorf("the request with Once started after %v, in the place of another", got)
			}
		})
		synctest.Wait()
		begin := time.Now()
		take(time.Second, false)
		if got := time.Since(begin); got != 0 {
			t.Errorf("the request with a reservation waited %v, want 0", got)
		}
		both.Wait()
		if got := l.Stats().Expired; got != 0 {
			t.Errorf("%d reservations expired, want 0", got)
		}
	})
}

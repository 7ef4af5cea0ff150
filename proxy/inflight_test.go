package proxy

import (
	"net/http"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

func TestInflight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newInflight()
		u.wait(t.Context()) // for nothing
		u.begin()
		u.begin()
		waited := false
		go func() { u.wait(t.Context()); waited = true }()
		u.end()
		if synctest.Wait(); waited {
			t.Fatal("wait returned during a request")
		}
		u.end()
		if synctest.Wait(); !waited {
			t.Fatal("wait continues without a request")
		}
	})
}

func TestInflightIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newInflight()
		begins := func() (began bool) {
			defer func() { began = recover() != http.ErrAbortHandler }()
			u.begin()
			return
		}
		u.begin()
		closed := false
		go func() { u.close(); closed = true }()
		if synctest.Wait(); closed || !begins() { // until the last has ended, others begin
			t.Fatal("close did not wait for the requests")
		}
		u.end()
		u.end()
		if synctest.Wait(); !closed || begins() {
			t.Error("something began after close")
		}
	})
}

// Requests may begin and end during a wait, which is misuse of a sync.WaitGroup (-race, or a panic), and every wait
// ends.
func TestInflightDuringAWait(t *testing.T) {
	u := newInflight()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 2000 {
				u.begin()
				runtime.Gosched()
				u.end()
			}
		})
		all.Go(func() {
			for range 2000 {
				u.wait(t.Context())
			}
		})
	}
	all.Wait()
}

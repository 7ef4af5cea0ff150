package proxy

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

func TestUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newInflight()
		u.wait(t.Context()) // for nothing
		u.begin()
		u.begin()
		waited := false
		go func() { u.wait(t.Context()); waited = true }()
		u.end()
		if synctest.Wait(); waited {
			t.Fatal("wait returned while something was under way")
		}
		u.end()
		if synctest.Wait(); !waited {
			t.Fatal("wait goes on when nothing is under way")
		}
	})
}

func TestUnderWayIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newInflight()
		u.begin()
		closed := false
		go func() { u.close(); closed = true }()
		if synctest.Wait(); closed || !u.begin() { // until the last has ended, others begin
			t.Fatal("close did not wait for what was under way")
		}
		u.end()
		u.end()
		if synctest.Wait(); !closed || u.begin() {
			t.Error("something began after close")
		}
	})
}

// Requests may begin and end during a wait, which is misuse of a sync.WaitGroup (-race, or a panic), and every wait
// ends.
func TestUnderWayWhileItIsWaitedFor(t *testing.T) {
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

package timelimit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/timelimit"
)

var errLate = errors.New("too late")

func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, d := range []time.Duration{0, 300 * time.Millisecond, time.Second, 10*time.Second + 1} {
			begin := time.Now()
			c := timelimit.New(t.Context(), d, errLate)
			child, cancel := context.WithCancel(c)
			<-child.Done()
			if time.Since(begin) != d || c.Err() != context.DeadlineExceeded || context.Cause(child) != errLate || c.Left() != 0 {
				t.Errorf("a limit of %v ended after %v: %v because of %v, %v left", d, time.Since(begin), c.Err(), context.Cause(child), c.Left())
			}
			cancel()
			c.End()
		}
	})
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		c := timelimit.New(t.Context(), 5*time.Second, errLate)
		defer c.End()
		for range 3 { // 4.5 s count
			time.Sleep(1500 * time.Millisecond)
			if !c.Pause() {
				t.Fatal("it ended too early")
			}
			time.Sleep(time.Minute)
			c.Resume()
		}
		if got := c.Left(); got != 500*time.Millisecond {
			t.Errorf("%v left, want 500ms", got)
		}
		<-c.Done()
		if got, want := time.Since(begin), 3*time.Minute+5*time.Second; got != want {
			t.Errorf("it ended after %v, want %v", got, want)
		}
		if c.Pause() {
			t.Error("Pause returned true after the end")
		}
	})
}

func TestEndsWithItsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithCancel(t.Context())
		c := timelimit.New(parent, time.Minute, errLate)
		cancel()
		if c.Err() != context.Canceled || c.IsUp() || c.Pause() {
			t.Errorf("%v, %t; want the error of the parent", c.Err(), c.IsUp())
		}
		c.End()
		time.Sleep(time.Hour)
		if c.IsUp() {
			t.Error("the time of a limit that has ended is up")
		}
	})
}

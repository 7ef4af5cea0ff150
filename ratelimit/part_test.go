package ratelimit

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestPartsPass sends parts while documents of the same client and of another wait, and while there is a reservation:
// the parts wait only for MaxConcurrent, and the documents count their Delay from the last part.
func TestPartsPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{MaxConcurrent: 2})
		page := Request{Key: host, Client: "a", Delay: 10 * time.Second, MaxWait: minute}
		part := page
		part.Delay, part.Part, part.MaxWait = 0, true, 0
		send(t, l, page, 0)
		var all sync.WaitGroup
		starts := make([]time.Duration, 2)
		begin := time.Now()
		for i, client := range []string{"a", "b"} {
			all.Go(func() {
				document := page
				document.Client = client
				g := acquire(t, l, document)
				starts[i] = time.Since(begin)
				g.Release(Outcome{})
			})
			synctest.Wait()
		}
		impatient := page
		impatient.MaxWait = 0
		turnedAway(t, l, impatient)
		time.Sleep(1500 * time.Millisecond)

		under := []Grant{acquire(t, l, part), acquire(t, l, part)}
		turnedAway(t, l, part) // there are two already
		part.MaxWait = minute
		waits := make([]time.Duration, 3)
		for i := range waits {
			all.Go(func() { waits[i] = send(t, l, part, time.Second) })
			synctest.Wait()
		}
		time.Sleep(time.Second)
		for _, g := range under {
			g.Release(Outcome{})
		}
		all.Wait()
		slices.Sort(waits)
		if want := []time.Duration{time.Second, time.Second, 2 * time.Second}; !slices.Equal(waits, want) {
			t.Errorf("the parts waited %v, want %v", waits, want)
		}
		// The last part ends 4.5 s after the begin. b is before a, which has had the turns of its parts.
		if want := []time.Duration{24500 * time.Millisecond, 14500 * time.Millisecond}; !slices.Equal(starts, want) {
			t.Errorf("the documents started %v after the begin, want %v", starts, want)
		}
	})
}

// TestPartsPassForAWhile has a client send a part every five seconds for ever: a document with a Delay of ten starts
// nevertheless.
func TestPartsPassForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		document := Request{Key: host, Client: "a", Delay: 10 * time.Second, MaxWait: minute}
		send(t, l, document, 0)
		stop := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Second):
					send(t, l, Request{Key: host, Client: "b", MaxWait: minute, Part: true}, 0)
				}
			}
		})
		for range 3 {
			if got := send(t, l, document, 0); got < document.Delay || got > partsFirst+2*document.Delay {
				t.Errorf("the document waited %v, want 10s to 50s", got)
			}
		}
		close(stop)
		all.Wait()
	})
}

// TestPartsOfAPausedClient has parts of a client wait that is paused itself: parts of another start.
func TestPartsOfAPausedClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		document := Request{Key: host, Client: "c", Delay: 10 * time.Second, MaxWait: minute}
		send(t, l, document, 0)
		l.Hear(host, "a", Outcome{Status: 429, RetryAfter: 20 * time.Second, Credentials: true})
		var all sync.WaitGroup
		all.Go(func() { send(t, l, document, 0) })
		synctest.Wait()
		for client, want := range map[string]time.Duration{"a": 20 * time.Second, "b": 0} {
			all.Go(func() {
				if got := send(t, l, Request{Key: host, Client: client, MaxWait: minute, Part: true}, 0); got != want {
					t.Errorf("the part of %s waited %v, want %v", client, got, want)
				}
			})
		}
		all.Wait()
	})
}

// TestReckonParts calls Reckon for documents and for parts. A part does not wait for the slots of documents, but for a
// pause. The next document counts its Delay from the part.
func TestReckonParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		page := Request{Key: host, Client: "a", Delay: 10 * time.Second, MaxWait: minute}
		part := page
		part.Delay, part.Part = 0, true
		reckon := func(r Request, want time.Duration) {
			t.Helper()
			if wait, _, ok := l.Reckon(r); wait != want || !ok {
				t.Errorf("Reckon(%+v) = %v, %v, want %v, true", r, wait, ok, want)
			}
		}
		reckon(page, 0)
		reckon(page, 10*time.Second)
		reckon(part, 0)
		reckon(page, 20*time.Second)
		time.Sleep(25 * time.Second)
		reckon(part, 0)
		reckon(page, 10*time.Second)
		l.Hear(host, "a", Outcome{Status: 429, RetryAfter: 30 * time.Second})
		reckon(part, 30*time.Second)
	})
}

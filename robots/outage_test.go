package robots_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// fakeWay is the way to every origin. While it is broken nothing is reached.
type fakeWay struct {
	broken bool
	asked  int
}

var errBroken = errors.New("the way is broken")

func (w *fakeWay) RoundTrip(r *http.Request) (*http.Response, error) {
	w.asked++
	if w.broken {
		return nil, errBroken
	}
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(file)), Request: r}, nil
}

// A failure on the way says nothing of the file: it is told, met again for a moment without another try, and kept
// nowhere.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		way, store := &fakeWay{broken: true}, newShelf()
		f := newFetcherOver(t, way, func(o *fetch.Options) {
			o.TTL = time.Hour
			o.UpstreamFailed = func(err error) bool { return errors.Is(err, errBroken) }
		})
		c := newCache(t, robots.CacheOptions{Fetch: f.Fetch, Store: store})
		a := mustOrigin(t, "http://a.example")
		fails := func(when string, asked int) {
			t.Helper()
			for range 3 {
				if snap, err := c.Snapshot(t.Context(), a, robots.Asker{}); snap != nil || !errors.Is(err, errBroken) {
					t.Errorf("%s: Snapshot = %v, %v, want %v", when, snap, err, errBroken)
				}
			}
			if way.asked != asked {
				t.Errorf("%s: %d requests, want %d", when, way.asked, asked)
			}
		}
		fails("broken", 1)
		time.Sleep(10 * time.Second)
		fails("still broken", 2)
		if got := store.called("Save"); got != 0 || c.Stats().Failures != 0 {
			t.Errorf("%d snapshots were saved and %d failures counted, want none: they are not the site's", got, c.Stats().Failures)
		}

		way.broken = false
		time.Sleep(10 * time.Second)
		if got := outline(lookUp(t, c, a)); got != "found 200 /open" {
			t.Errorf("mended: %s", got)
		}
		way.broken = true
		time.Sleep(time.Hour)
		fails("with an expired copy", 4)
		if snap, err := c.Peek(t.Context(), a); err != nil || snap.Stale || snap.Failures != 0 {
			t.Errorf("with an expired copy: Peek = %+v, %v; want the copy as it was", snap, err)
		}
		way.broken = false
		if snap, err := c.Refresh(t.Context(), a); err != nil || snap.Stale {
			t.Errorf("Refresh, which waits for nothing: %v, %v", snap, err)
		}
	})
}

// What is remembered of outages is bounded.
func TestOutagesAreBounded(t *testing.T) {
	way := &fakeWay{broken: true}
	f := newFetcherOver(t, way, func(o *fetch.Options) { o.UpstreamFailed = func(error) bool { return true } })
	c := newCache(t, robots.CacheOptions{Fetch: f.Fetch})
	const most = 10_000
	ask := func(n int) {
		_, _ = c.Snapshot(t.Context(), mustOrigin(t, fmt.Sprintf("http://a%d.example", n)), robots.Asker{})
	}
	for n := range most + 1 {
		ask(n)
	}
	asked := way.asked
	if ask(most); way.asked != asked {
		t.Error("the last of many is not remembered")
	}
	if ask(0); way.asked != asked+1 {
		t.Error("the first of too many is remembered still")
	}
}

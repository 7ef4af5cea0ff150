package ownfetch

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// sender sends requests as http.Transport does.
type sender func(*http.Request) (*http.Response, error)

func (s sender) RoundTrip(r *http.Request) (*http.Response, error) { return s(r) }

// A stop ends a fetch that waits for its answer, and EndStopped waits for its end. The file counts as it did before.
func TestStopOfAFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFetchRig(t, "", policy.Options{})
		sent, errLost := 0, errors.New("lost")
		var ended time.Time
		slow := sender(func(r *http.Request) (*http.Response, error) {
			sent++
			<-r.Context().Done()
			time.Sleep(time.Second) // as a transport that closes a connection
			ended = time.Now()
			return nil, errLost
		})
		send := func(ctx context.Context, host string) error {
			req, err := http.NewRequestWithContext(ctx, "GET", "http://"+host+"/robots.txt", nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = r.Send(slow, req)
			return err
		}
		begun := make(chan error)
		go func() { begun <- send(t.Context(), "victim.example") }()
		time.Sleep(time.Minute)
		go func() { r.stop(); begun <- nil }()
		isLater(t, <-begun, time.Time{})
		<-begun
		if time.Since(ended) != 0 || ended.IsZero() {
			t.Errorf("the stop returned %v after the end of the fetch", time.Since(ended))
		}
		isLater(t, send(t.Context(), "victim.example"), time.Time{})
		if sent != 1 {
			t.Errorf("%d requests were sent", sent)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := send(ctx, "other.example"); err != errLost {
			t.Errorf("a fetch that times out ends with %v", err)
		}
	})
}

// A fetch of the host's robots.txt is refused before it is sent, and may be tried again at any time.
func TestStoppedHostsFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFetchRig(t, "", policy.Options{})
		hop := r.hop("a", "/robots.txt")
		hop.For, hop.Page = hop.To, false
		v, err := r.Admit(t.Context(), hop)
		if err != nil {
			t.Fatal(err)
		}
		r.stop()
		err = v.Begin(t.Context(), nil)
		isLater(t, err, time.Time{})
		_, err = r.Admit(t.Context(), hop)
		isLater(t, err, time.Time{})
		for _, rec := range r.records.all() {
			if rec.Reason != policy.ReasonStopped || rec.Intervention != "stop victim.example: the owner asked (ops)" || !rec.SentAt.IsZero() {
				t.Errorf("record %+v", rec)
			}
		}
		if n := len(r.records.all()); n != 2 {
			t.Errorf("%d records", n)
		}
		var refused *fetch.RefusedError
		if errors.As(err, &refused) {
			t.Error("the file counts as unreachable")
		}
	})
}

//go:build linux

package main

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// A client whose account has used up its quota does not have the host paused for the other.
func TestHostileQuota(t *testing.T) {
	for _, test := range []struct {
		status int
		fields map[string]string
	}{
		{429, map[string]string{"Retry-After": "60"}},
		{200, map[string]string{"RateLimit-Remaining": "0", "RateLimit-Reset": "60"}},
	} {
		t.Run(fmt.Sprint(test.status), func(t *testing.T) {
			site := robotstest.New(t)
			site.SetPage("a.example", "/account", func(w http.ResponseWriter, _ *http.Request) {
				for name, value := range test.fields {
					w.Header().Set(name, value)
				}
				w.WriteHeader(test.status)
			})
			s := newScene(t, site, "pacing: {max_wait: 1s}\n")
			url := func(path string) string { return fmt.Sprintf("http://a.example:%d%s", site.Port(), path) }
			one := &http.Client{Transport: s.transport("one")}
			ask := func(path string) *http.Response {
				req, err := http.NewRequest(http.MethodGet, url(path), nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Cookie", "account=one")
				resp, err := one.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				return resp
			}
			s.unharmed(20, s.get("other", url("/page/1")), func(context.Context) {
				if resp := ask("/account"); resp.StatusCode != test.status {
					t.Errorf("the origin's answer: %s", resp.Status)
				}
			})
			if resp := ask("/page/1"); resp.StatusCode != 429 || resp.Header.Get("Robotsproxy-Reason") != "backoff" {
				t.Errorf("the client itself: %s %v, want 429 and the reason backoff", resp.Status, resp.Header)
			}
		})
	}
}

package admin

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/rules"
)

// noPast is a History without versions and changes, of one origin for each host.
type noPast []origin.Origin

func (p noPast) Origins(_ context.Context, host string, limit int) (found []origin.Origin, _ error) {
	for _, o := range p {
		if (host == "" || o.Host() == host) && len(found) < limit {
			found = append(found, o)
		}
	}
	return found, nil
}

func (noPast) Versions(context.Context, origin.Origin, int) ([]robots.Version, error) {
	return nil, nil
}

func (noPast) Changes(context.Context, origin.Origin, int) ([]robots.Change, error) { return nil, nil }

// newFilesHandler serves a Cache that has asked for the file of each origin once.
func newFilesHandler(t *testing.T, origins ...origin.Origin) *Handler {
	t.Helper()
	cache, err := robots.NewCache(robots.CacheOptions{
		Fetch: func(_ context.Context, r robots.Request) (*robots.Snapshot, error) {
			body := []byte("User-agent: *\nDisallow: /private\n")
			return &robots.Snapshot{
				Origin: r.Origin, Availability: robots.Found, Status: 200, Body: body, SHA256: "5ha", Rules: rules.Parse(body, rules.Options{}),
				Fetched: time.Now(), Expires: time.Now().Add(time.Hour), Redirects: []string{"https://b.example/<robots>.txt"},
			}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cache.Close)
	for _, o := range origins {
		if _, err := cache.Snapshot(t.Context(), o, ""); err != nil {
			t.Fatal(err)
		}
	}
	return newHandler(t, Options{Files: cache, History: noPast(origins)})
}

func TestFiles(t *testing.T) {
	a, err := origin.Parse("https://a.example")
	if err != nil {
		t.Fatal(err)
	}
	h := newFilesHandler(t, a)
	for _, tt := range []struct {
		name, method, path string
		status             int
		body               string // a part of it
	}{
		{"list", "GET", "/api/cache", 200, `"origin":"https://a.example"`},
		{"by host", "GET", "/api/cache/file?host=A.example.", 200, `"state":"found"`},
		{"by origin", "GET", "/api/cache/file?host=https://a.example:443", 200, `"body":"VXNlci1hZ2VudDog`},
		{"another host", "GET", "/api/cache/file?host=b.example", 404, "no robots.txt of b.example is kept; refresh https://b.example fetches it"},
		{"another origin", "GET", "/api/cache/file?host=http://a.example", 404, "no robots.txt of http://a.example is kept"},
		{"no host", "GET", "/api/cache/file", 400, "name a host or an origin such as https://a.example"},
		{"no origin", "GET", "/api/cache/file?host=ftp://a.example", 400, "ftp"},
		{"refresh", "POST", "/api/cache/refresh?host=a.example", 200, `"sha256":"5ha"`},
		{"refresh by GET", "GET", "/api/cache/refresh?host=a.example", 405, ""},
		{"refresh what is new", "POST", "/api/cache/refresh?host=https://c.example", 200, `"origin":"https://c.example"`},
		{"purge", "POST", "/api/cache/purge?host=a.example", 200, `{"purged":["https://a.example"]}`},
		{"what was purged", "GET", "/api/cache/file?host=https://a.example", 404, "no robots.txt of https://a.example is kept"},
		{"list after that", "GET", "/api/cache", 200, `{"files":[]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := ask(h, tt.method, tt.path, "Authorization", "Bearer "+testToken)
			if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.body) {
				t.Errorf("%s %s = %d %s, want %d with %s", tt.method, tt.path, w.Code, w.Body, tt.status, tt.body)
			}
		})
	}
}

// Nobody sees or changes a file without the token, nor does a page of another site with it.
func TestFilesAreProtected(t *testing.T) {
	h := newFilesHandler(t)
	for _, path := range []string{"/api/cache", "/api/cache/file?host=a.example"} {
		if w := ask(h, "GET", path); w.Code != 401 {
			t.Errorf("GET %s without the token = %d, want 401", path, w.Code)
		}
	}
	for _, path := range []string{"/api/cache/refresh?host=a.example", "/api/cache/purge?host=a.example"} {
		if w := ask(h, "POST", path); w.Code != 401 {
			t.Errorf("POST %s without the token = %d, want 401", path, w.Code)
		}
		if w := ask(h, "POST", path, "Authorization", "Bearer "+testToken, "Sec-Fetch-Site", "cross-site"); w.Code != 403 {
			t.Errorf("POST %s from another site = %d, want 403", path, w.Code)
		}
	}
}

func TestFileShowsTrouble(t *testing.T) {
	since := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	snap := &robots.Snapshot{Stale: true, Availability: robots.Found, Rules: &rules.Ruleset{}, Since: since, Failures: 3, Marks: robots.Unauthorized, Cause: "destination_unavailable"}
	got, err := json.Marshal(file(origin.Origin{}, snap))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"state":"stale"`, `"marks":"unauthorized"`, `"since":"2026-11-01T00:00:00Z"`, `"failures":3`, `"cause":"destination_unavailable"`} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%s lacks %s", got, want)
		}
	}
}

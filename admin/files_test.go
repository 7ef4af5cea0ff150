package admin

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
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

func (noPast) Body(context.Context, string) ([]byte, error) {
	return nil, errors.New("nothing is past")
}

// past is a History in which a host has had a text, of which the database has lost the body of one.
type past struct{ noPast }

func (past) Versions(_ context.Context, o origin.Origin, _ int) ([]robots.Version, error) {
	return []robots.Version{{Origin: o, SHA256: "beef00", Size: 5, Status: 200, Redirects: []string{"https://b.example/r"}}, {Origin: o, SHA256: "bee111"}}, nil
}

func (past) Changes(_ context.Context, o origin.Origin, _ int) ([]robots.Change, error) {
	return []robots.Change{{Origin: o, Time: time.Now(), OldState: "unavailable", NewState: "found", NewSHA256: "beef00"}}, nil
}

func (past) Body(_ context.Context, sha256 string) ([]byte, error) {
	if sha256 != "beef00" {
		return nil, errors.New("the body is damaged")
	}
	return []byte("# old"), nil
}

// withOwn are files of which one host's is the operator's own.
type withOwn struct {
	*robots.Cache
	host string
	snap *robots.Snapshot
}

func (f withOwn) Own(host string) []OwnFile {
	switch {
	case f.host == "" || host != "" && host != f.host:
		return nil
	case host == "":
		return []OwnFile{{f.host, f.snap}, {"*.pattern.example", f.snap}}
	}
	return []OwnFile{{f.host, f.snap}}
}

func (f withOwn) Peek(ctx context.Context, o origin.Origin) (*robots.Snapshot, error) {
	switch o.Host() {
	case f.host:
		return f.snap, nil
	case "damaged.example":
		return nil, errors.New("the row is damaged")
	}
	return f.Cache.Peek(ctx, o)
}

// newFilesHandler serves a Cache that has asked for the file of each origin once.
func newFilesHandler(t *testing.T, origins ...origin.Origin) *Handler {
	t.Helper()
	return newHandler(t, Options{Files: withOwn{Cache: newTestCache(t, origins...)}, History: noPast(origins)})
}

func newTestCache(t *testing.T, origins ...origin.Origin) *robots.Cache {
	t.Helper()
	cache, err := robots.NewCache(robots.CacheOptions{
		Fetch: func(_ context.Context, r fetch.Request) (*robots.Answer, error) {
			if r.Origin.Host() == "prohibited.example" {
				return nil, errors.New("the address is private")
			}
			body := []byte("User-agent: *\nDisallow: /private\n")
			return &robots.Answer{
				Origin: r.Origin, Availability: robots.Found, Status: 200, Body: body, SHA256: "5ha",
				Fetched: time.Now(), Expires: time.Now().Add(time.Hour),
				Redirects: []string{"https://b.example/<robots>.txt"},
			}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cache.Close)
	for _, o := range origins {
		if _, err := cache.Snapshot(t.Context(), o, robots.Asker{}); err != nil {
			t.Fatal(err)
		}
	}
	return cache
}

func mustOrigins(t *testing.T, names ...string) (all []origin.Origin) {
	t.Helper()
	for _, name := range names {
		o, err := origin.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	return all
}

func TestFiles(t *testing.T) {
	checkAnswers(t, newFilesHandler(t, mustOrigins(t, "https://a.example")...), []question{
		{"list", "GET", "/api/cache", 200, `"origin":"https://a.example"`},
		{"by host", "GET", "/api/cache/file?host=A.example.", 200, `"state":"found"`},
		{"by origin", "GET", "/api/cache/file?host=https://a.example:443", 200, `"body":"VXNlci1hZ2VudDog`},
		{"another host", "GET", "/api/cache/file?host=b.example", 404, "no robots.txt of b.example is kept; refresh https://b.example fetches it"},
		{"another origin", "GET", "/api/cache/file?host=http://a.example", 404, "no robots.txt of http://a.example is kept"},
		{"no host", "GET", "/api/cache/file", 400, "name a host or an origin such as https://a.example"},
		{"a host and a port", "GET", "/api/cache/file?host=a.example:18080", 400, "write http://a.example:18080 or https://a.example:18080"},
		{"a host and a path", "GET", "/api/cache/file?host=a.example/robots.txt", 400, "write http://a.example/robots.txt or https://a.example/robots.txt"},
		{"an address and a port", "GET", "/api/cache/file?host=[::1]:80", 400, "write http://[::1]:80 or"},
		{"no origin", "GET", "/api/cache/file?host=ftp://a.example", 400, "ftp"},
		{"refresh", "POST", "/api/cache/refresh?host=a.example", 200, `"sha256":"5ha"`},
		{"refresh by GET", "GET", "/api/cache/refresh?host=a.example", 405, ""},
		{"refresh what is new", "POST", "/api/cache/refresh?host=https://c.example", 200, `"origin":"https://c.example"`},
		{"purge", "POST", "/api/cache/purge?host=a.example", 200, `{"purged":["https://a.example"]}`},
		{"what was purged", "GET", "/api/cache/file?host=https://a.example", 404, "no robots.txt of https://a.example is kept"},
		{"list after that", "GET", "/api/cache", 200, `{"files":[]}`},
	})
}

// question is a request with the token, and what of its answer matters.
type question struct {
	name, method, path string
	status             int
	body               string // a part of it
}

func checkAnswers(t *testing.T, h *Handler, questions []question) {
	t.Helper()
	for _, q := range questions {
		t.Run(q.name, func(t *testing.T) {
			w := ask(h, q.method, q.path, "Authorization", "Bearer "+testToken)
			if w.Code != q.status || !strings.Contains(w.Body.String(), q.body) {
				t.Errorf("%s %s = %d %s, want %d with %s", q.method, q.path, w.Code, w.Body, q.status, q.body)
			}
		})
	}
}

// A file of the operator's is shown as what is in force, and no question to its site changes it.
func TestOwnFiles(t *testing.T) {
	body := []byte("User-agent: *\nDisallow: /own\n")
	own := &robots.Snapshot{Answer: robots.Answer{Availability: robots.Found, Status: 200, Body: body, SHA256: "0 w n", Fetched: time.Now()}, Rules: rules.Parse(body, rules.Options{})}
	origins := mustOrigins(t, "https://a.example", "https://own.example", "http://own.example") // kept from before it had a file
	h := newHandler(t, Options{Files: withOwn{newTestCache(t, origins...), "own.example", own}, History: noPast(origins)})
	checkAnswers(t, h, []question{
		{"list", "GET", "/api/cache", 200, `{"files":[{"origin":"own.example","state":"found","status":200,"fetched":`},
		{"show by host", "GET", "/api/cache/file?host=OWN.example.", 200, `[{"origin":"own.example",`},
		{"show by a pattern", "GET", "/api/cache/file?host=*.pattern.example", 200, `[{"origin":"*.pattern.example",`},
		{"show by a pattern that has none", "GET", "/api/cache/file?host=*.example", 400, "name a host"},
		{"show by an origin", "GET", "/api/cache/file?host=http://own.example", 200, `[{"origin":"http://own.example",`},
		{"show by an origin that nobody asked for", "GET", "/api/cache/file?host=http://own.example:8080", 200, `"sha256":"0 w n"`},
		{"refresh", "POST", "/api/cache/refresh?host=own.example", 409, "own.example is judged by your own robots_file, which is read when robotsproxy starts"},
		{"purge", "POST", "/api/cache/purge?host=https://own.example", 409, "own.example is judged by your own robots_file"},
		{"refresh of another", "POST", "/api/cache/refresh?host=a.example", 200, `"origin":"https://a.example"`},
	})
	if w := ask(h, "GET", "/api/cache", "Authorization", "Bearer "+testToken); strings.Contains(w.Body.String(), "://own.example") {
		t.Errorf("the list has a file that is not in force: %s", w.Body)
	}
}

// One file that cannot be had hides no other.
func TestFileThatCannotBeHad(t *testing.T) {
	origins := mustOrigins(t, "https://damaged.example", "https://a.example")
	h := newHandler(t, Options{Files: withOwn{Cache: newTestCache(t, origins...)}, History: noPast(origins)})
	checkAnswers(t, h, []question{
		{"list", "GET", "/api/cache", 200, `{"files":[{"origin":"https://damaged.example","state":"error","size":0,"error":"the row is damaged"},{"origin":"https://a.example","state":"found"`},
	})
	prohibited := noPast(mustOrigins(t, "http://prohibited.example", "https://prohibited.example"))
	h = newHandler(t, Options{Files: withOwn{Cache: newTestCache(t)}, History: prohibited})
	checkAnswers(t, h, []question{
		{"refresh", "POST", "/api/cache/refresh?host=prohibited.example", 200, `the address is private"},{"origin":"https://prohibited.example","state":"error"`},
	})
}

func TestFileVersion(t *testing.T) {
	origins := mustOrigins(t, "https://a.example")
	h := newHandler(t, Options{Files: withOwn{Cache: newTestCache(t, origins...)}, History: past{noPast(origins)}})
	checkAnswers(t, h, []question{
		{"by its beginning", "GET", "/api/cache/version?host=a.example&sha256=BEE", 200, `"body":"IyBvbGQ="`},
		{"its redirects", "GET", "/api/cache/version?host=a.example&sha256=beef00", 200, `"redirects":["https://b.example/r"]`},
		{"one whose body is lost", "GET", "/api/cache/version?host=a.example&sha256=bee1", 500, "the body is damaged"},
		{"none", "GET", "/api/cache/version?host=a.example&sha256=c0", 404, `no version of a.example is kept whose SHA-256 begins with \"c0\"`},
		{"no hash", "GET", "/api/cache/version?host=a.example", 400, "name a version"},
		{"no host", "GET", "/api/cache/version?host=b.example&sha256=bee", 404, "no robots.txt of b.example is kept"},
	})
}

// Without the token, no request reads or changes a file. A page of another site does not either, even with the token.
func TestFilesAreProtected(t *testing.T) {
	h := newFilesHandler(t)
	for _, path := range []string{"/api/cache", "/api/cache/file?host=a.example", "/api/cache/version?host=a.example&sha256=0"} {
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
	snap := &robots.Snapshot{Answer: robots.Answer{Availability: robots.Found, Flags: robots.Unauthorized, Cause: "destination_unavailable"}, Stale: true, Rules: &rules.Ruleset{}, Since: since, Failures: 3}
	got, err := json.Marshal(file("https://a.example", snap))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"state":"stale"`, `"marks":"unauthorized"`, `"since":"2026-11-01T00:00:00Z"`, `"failures":3`, `"cause":"destination_unavailable"`} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%s lacks %s", got, want)
		}
	}
}

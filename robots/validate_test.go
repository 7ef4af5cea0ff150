package robots_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// conditions are what each request to a host asked by.
func recordConditions(seen *[]string, serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		*seen = append(*seen, r.Host+" "+strings.Trim(r.Header.Get("If-None-Match")+" "+r.Header.Get("If-Modified-Since"), " "))
		serve(w, r)
	}
}

// again fetches what previous is a copy of.
func again(tb testing.TB, f *fetch.Fetcher, previous *robots.Snapshot) *robots.Snapshot {
	tb.Helper()
	snap, err := f.Fetch(tb.Context(), fetch.Request{Origin: previous.Origin, Previous: &previous.Answer})
	if err != nil {
		tb.Fatalf("Fetch(%s) again: %v", previous.Origin, err)
	}
	again := robots.Parsed(snap)
	if snap.Validated() && &snap.Body[0] == &previous.Body[0] { // as a Cache does
		again.Rules = previous.Rules
	}
	return again
}

const modified = "Sat, 01 Nov 2025 08:00:00 GMT"

// TestRevalidate asks twice over real connections.
func TestRevalidate(t *testing.T) {
	for _, row := range []struct {
		name   string
		fields http.Header // of the file
		second func(w http.ResponseWriter, serve http.HandlerFunc, r *http.Request)
		asked  string // conditions of the second request
		want   string // of the second answer
	}{
		{"9110 13.1.2/ETag", http.Header{"Etag": {`"v1"`}}, nil, `"v1"`, "found 304 /open"},
		{"9110 13.1.2/a weak one", http.Header{"Etag": {`W/"v1"`}}, nil, `W/"v1"`, "found 304 /open"},
		{"9110 13.1.3/Last-Modified", http.Header{"Last-Modified": {modified}}, nil, modified, "found 304 /open"},
		{"9110 13.1/both", http.Header{"Etag": {`"v1"`}, "Last-Modified": {modified}}, nil, `"v1" ` + modified, "found 304 /open"},
		{"9110 13.1/neither", http.Header{}, nil, "", "found 200 /open"},
		{"9110 13.1.2/it has changed", http.Header{"Etag": {`"v1"`}}, func(w http.ResponseWriter, _ http.HandlerFunc, _ *http.Request) {
			w.Header().Set("ETag", `"v2"`)
			_, _ = w.Write([]byte("User-agent: *\nDisallow: /open\n"))
		}, `"v1"`, "found 200 /private"},
		{"9110 13.1.2/it is gone", http.Header{"Etag": {`"v1"`}}, func(w http.ResponseWriter, _ http.HandlerFunc, _ *http.Request) {
			w.WriteHeader(404)
		}, `"v1"`, "unavailable 404 /open /private"},
		{"9111 4.3.4/304 for another file", http.Header{"Etag": {`"v1"`}}, func(w http.ResponseWriter, _ http.HandlerFunc, _ *http.Request) {
			w.Header().Set("ETag", `"v2"`)
			w.WriteHeader(304)
		}, `"v1"`, "unreachable 304 http_protocol_error"},
		{"9111 4.3.4/304 that nobody asked for", http.Header{}, func(w http.ResponseWriter, _ http.HandlerFunc, _ *http.Request) {
			w.WriteHeader(304)
		}, "", "unreachable 304 http_protocol_error"},
		{"a tag that is too long to keep", http.Header{"Etag": {`"` + strings.Repeat("x", 2000) + `"`}}, nil, "", "found 200 /open"},
	} {
		t.Run(row.name, func(t *testing.T) {
			site, asked := robotstest.New(t), 0
			var seen []string
			site.SetRobots("", robotstest.Robots{Handler: recordConditions(&seen, func(w http.ResponseWriter, r *http.Request) {
				serve := func(w http.ResponseWriter, r *http.Request) {
					for name, values := range row.fields {
						w.Header()[name] = values
					}
					http.ServeContent(w, r, "", time.Time{}, strings.NewReader(file))
				}
				if asked++; asked > 1 && row.second != nil {
					row.second(w, serve, r)
					return
				}
				if r.Header.Get("If-Modified-Since") != "" { // ServeContent would compare with its own time
					w.WriteHeader(304)
					return
				}
				serve(w, r)
			})})
			f := newFetcher(t, site, nil)
			first := fetched(t, f, "http://a.example")
			second := again(t, f, first)
			if diff := cmp.Diff([]string{"a.example ", "a.example " + row.asked}, seen); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if got := outline(second); got != row.want {
				t.Errorf("the second time: %s, want %s", got, row.want)
			}
			if second.Status != 304 || second.Availability != robots.Found {
				return
			}
			if second.SHA256 != first.SHA256 || string(second.Body) != file || second.Rules != first.Rules || second.Fetched.Equal(first.Fetched) {
				t.Errorf("304 made %+v of %+v", second, first)
			}
			if third := again(t, f, second); third.Status != 304 {
				t.Errorf("the third time: %s, want 304 again", outline(third))
			}
		})
	}
}

// TestRevalidateRedirected sends validators to the URL that they came from, and to no other.
func TestRevalidateRedirected(t *testing.T) {
	site := robotstest.New(t)
	var seen []string
	to := "http://b.example/robots.txt"
	site.SetRobots("a.example", robotstest.Robots{Handler: recordConditions(&seen, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, to, http.StatusFound)
	})})
	for _, host := range []string{"b.example", "c.example"} {
		site.SetRobots(host, robotstest.Robots{Handler: recordConditions(&seen, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"v1"`)
			http.ServeContent(w, r, "", time.Time{}, strings.NewReader(file))
		})})
	}
	f := newFetcher(t, site, nil)
	snap := fetched(t, f, "http://a.example")
	snap = again(t, f, snap)
	if got := outline(snap); got != "found 304 /open" {
		t.Errorf("by the same way: %s", got)
	}
	to = "http://c.example/robots.txt"
	snap = again(t, f, snap)
	if got := outline(snap); got != "found 200 /open" {
		t.Errorf("by another way: %s", got)
	}
	want := []string{"a.example ", "b.example ", "a.example ", `b.example "v1"`, "a.example ", "c.example "}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}

// TestRevalidateLifetime renews by the fields of 304, and by those of the file where it says nothing (RFC 9111 section
// 4.3.4).
func TestRevalidateLifetime(t *testing.T) {
	for _, row := range []struct {
		name          string
		first, second http.Header
		want          time.Duration
	}{
		{"304 says nothing, nor did the file", http.Header{}, http.Header{}, 24 * time.Hour},
		{"304 says nothing", http.Header{"Cache-Control": {"max-age=7200"}}, http.Header{}, 2 * time.Hour},
		{"304 says something else", http.Header{"Cache-Control": {"max-age=7200"}}, http.Header{"Cache-Control": {"max-age=3600"}}, time.Hour},
		{"the file was old, 304 is not", http.Header{"Cache-Control": {"max-age=7200"}, "Age": {"3600"}}, http.Header{}, 2 * time.Hour},
		{"304 is old", http.Header{"Cache-Control": {"max-age=7200"}}, http.Header{"Age": {"3600"}}, time.Hour},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				row.first.Set("ETag", `"v1"`)
				store := newShelf()
				answer := answering{status: 200, header: row.first, body: file}
				f := newFetcherOver(t, roundTripper(func(r *http.Request) (*http.Response, error) { return answer.RoundTrip(r) }), nil)
				c := newCache(t, robots.CacheOptions{Fetch: f.Fetch, Store: store})
				o := mustOrigin(t, "http://a.example")
				first := lookUp(t, c, o)
				answer = answering{status: 304, header: row.second}
				for range 3 { // what holds once must hold on
					time.Sleep(time.Hour)
					snap, err := c.Refresh(t.Context(), o)
					if err != nil || outline(snap) != "found 304 /open" {
						t.Fatalf("Refresh = %v, %v", snap, err)
					}
					if snap.Rules != first.Rules {
						t.Error("the rules of a file that was validated were parsed again")
					}
					if got := time.Until(snap.Expires); got != row.want {
						t.Errorf("good for %v, want %v", got, row.want)
					}
					synctest.Wait()
					if store.kept[o].ETag == "" || store.kept[o].Fields != snap.Fields {
						t.Errorf("the Store has %v, the Snapshot %v", store.kept[o], snap)
					}
				}
				if got := c.Stats(); got.Revalidated != 3 || got.Changes != 0 {
					t.Errorf("%+v, want 3 revalidations and no change", got)
				}
			})
		})
	}
}

// TestRevalidateStale has an outage between a file and its 304, and a 304 that is for another file: the next request is
// without conditions, or the copy could never be renewed.
func TestRevalidateStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var conditions []string
		answer := answering{status: 200, header: http.Header{"Etag": {`"v1"`}}, body: file}
		f := newFetcherOver(t, roundTripper(func(r *http.Request) (*http.Response, error) {
			conditions = append(conditions, r.Header.Get("If-None-Match"))
			return answer.RoundTrip(r)
		}), nil)
		c := newCache(t, robots.CacheOptions{Fetch: f.Fetch})
		o := mustOrigin(t, "http://a.example")
		for _, step := range []struct {
			answer answering
			want   string
		}{
			{answer, "found 200 /open"},
			{answering{status: 503, header: http.Header{}}, "stale 503 destination_unavailable /open"},
			{answering{status: 304, header: http.Header{}}, "found 304 /open"},
			{answering{status: 304, header: http.Header{"Etag": {`"v2"`}}}, "stale 304 http_protocol_error /open"},
			{answering{status: 200, header: http.Header{"Etag": {`"v2"`}}, body: file}, "found 200 /open"},
		} {
			answer = step.answer
			snap, err := c.Refresh(t.Context(), o)
			if err != nil || outline(snap) != step.want {
				t.Errorf("%d: %s, %v; want %s", step.answer.status, outline(snap), err, step.want)
			}
		}
		if diff := cmp.Diff([]string{"", `"v1"`, `"v1"`, `"v1"`, ""}, conditions); diff != "" {
			t.Errorf("conditions (-want +got):\n%s", diff)
		}
	})
}

// TestStoredFields keeps the fields of an answer that say for how long it may be used, within bounds, and no others.
func TestStoredFields(t *testing.T) {
	h := http.Header{
		"Server": {"x"}, "Set-Cookie": {"secret=1"}, "Age": {"7"}, "Expires": {strings.Repeat("x", 5000)},
		"Cache-Control": {"max-age=60", "must-revalidate"}, "Date": {"a\r\nSet-Cookie: b"},
	}
	snap := fetched(t, newFetcherOver(t, answering{status: 200, header: h, body: file}, nil), "http://a.example")
	want := "Age: 7\r\nCache-Control: max-age=60, must-revalidate\r\nDate: a  Set-Cookie: b\r\n"
	if diff := cmp.Diff(want, snap.Fields); diff != "" {
		t.Errorf("Fields (-want +got):\n%s", diff)
	}
}

// TestRevalidateWebPage has web pages refused from one day to the next: 304 does not let an older one in.
func TestRevalidateWebPage(t *testing.T) {
	h := http.Header{"Etag": {`"v1"`}}
	first := fetched(t, newFetcherOver(t, answering{status: 200, header: h, body: "<html>"}, nil), "http://a.example")
	if got := outline(first); got != "html 200 /open /private" {
		t.Fatalf("at first: %s", got)
	}
	second := again(t, newFetcherOver(t, answering{status: 304, header: h}, nil), first)
	if got := outline(second); got != "html 304 /open /private" {
		t.Errorf("let be: %s", got)
	}
	strict := newFetcherOver(t, answering{status: 304, header: h}, func(o *fetch.Options) { o.HTMLRefuses = true })
	if got := outline(again(t, strict, first)); got != "html 304 destination_unavailable" {
		t.Errorf("refused: %s", got)
	}
}

// TestRevalidateCut has a file that was cut fetched anew: a 304 would leave it so when more may be read of it.
func TestRevalidateCut(t *testing.T) {
	site := robotstest.New(t)
	long := "User-agent: *\n" + strings.Repeat("#\n", 100) + "Disallow: /private\n"
	site.SetRobots("a.example", robotstest.Robots{Handler: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(long))
	}})
	cut := fetched(t, newFetcher(t, site, func(o *fetch.Options) { o.MaxSize = 100 }), "http://a.example")
	if got, want := outline(cut), "oversize 200 /open /private"; got != want {
		t.Fatalf("the first time: %s, want %s", got, want)
	}
	if got, want := outline(again(t, newFetcher(t, site, nil), cut)), "found 200 /open"; got != want {
		t.Errorf("the second time, with more room: %s, want %s", got, want)
	}
}

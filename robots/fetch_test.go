package robots_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

func TestFetch(t *testing.T) {
	site := robotstest.New(t)
	f := newFetcher(t, site, nil)
	strict := newFetcher(t, site, func(o *fetch.Options) { o.UnauthorizedRefuses, o.HTMLRefuses = true, true })
	const page = "<!DOCTYPE html><title>Not here</title>\n" + file
	status := func(code int) robotstest.Robots { return robotstest.Robots{Status: code, Body: file} }
	type row struct {
		name   string
		robots robotstest.Robots
		want   string
		strict string // if not empty, the same with UnauthorizedRefuses and HTMLRefuses
	}
	rows := []row{
		{"2.3.1.1/200", status(200), "found 200 /open", ""},
		{"2.3.1.1/203", status(203), "found 203 /open", ""},
		{"2.3.1.1/204", robotstest.Robots{Status: 204}, "empty 204 /open /private", ""},
		{"2.3.1.1/206", status(206), "found 206 /open", ""},
		{"2.3.1.1/299", status(299), "found 299 /open", ""},
		{"2.3.1.1/empty", robotstest.Robots{}, "empty 200 /open /private", ""},
		{"2.3.1.1/a BOM", robotstest.Robots{Body: "\ufeff" + file}, "found 200 /open", ""},
		{"2.3.1.1/a media type that is wrong", robotstest.Robots{Body: file, Header: http.Header{"Content-Type": {"text/html"}}}, "found 200 /open", "found 200 /open"},
		{"2.3.1.1/a web page", robotstest.Robots{Body: page}, "html 200 /open", "html 200 destination_unavailable"},
		{"2.3.1.1/a web page behind a BOM and blank lines", robotstest.Robots{Body: "\ufeff\r\n\t <HTML>"}, "html 200 /open /private", "html 200 destination_unavailable"},
		{"2.3.1.1/a web page of XML", robotstest.Robots{Body: "<?xml version=\"1.0\"?><html>"}, "html 200 /open /private", "html 200 destination_unavailable"},
		{"2.3.1.1/a web page that begins with a comment", robotstest.Robots{Body: "<!-- 1 --><html>"}, "html 200 /open /private", "html 200 destination_unavailable"},
		{"2.3.1.1/a web page that begins with white space", robotstest.Robots{Body: "\r\n\f <p>"}, "html 200 /open /private", "html 200 destination_unavailable"},
		{"2.3.1.1/a web page without html, head and body", robotstest.Robots{Body: "<TITLE>Not here</TITLE>"}, "html 200 /open /private", "html 200 destination_unavailable"},
		{"2.3.1.1/a web page that is a picture", robotstest.Robots{Body: "<svg/>"}, "html 200 /open /private", "html 200 destination_unavailable"},
		{"2.3.1.1/a web page that redirects", robotstest.Robots{Body: "<meta http-equiv=refresh content=0>"}, "html 200 /open /private", "html 200 destination_unavailable"},
		{"2.3.1.1/a web page behind white space without end", robotstest.Robots{Body: strings.Repeat(" ", 1000) + "<html>"}, "html 200 /open /private", "html 200 destination_unavailable"},
		{"2.3.1.5/rubbish that is no web page", robotstest.Robots{Body: "<<<>\n<\n" + file}, "found 200 /open", "found 200 /open"},
		{"2.3.1.5/a lone bracket", robotstest.Robots{Body: "<"}, "found 200 /open /private", "found 200 /open /private"},
		{"2.3.1.3/a web page with 404", robotstest.Robots{Status: 404, Body: page}, "unavailable 404 /open /private", "unavailable 404 /open /private"},
		{"2.3.1.3/401", status(401), "unavailable 401 /open /private", "unreachable 401 destination_unavailable"},
		{"2.3.1.3/403", status(403), "unavailable 403 /open /private", "unreachable 403 destination_unavailable"},
		{"2.3.1.3/404 in a coding of its own", robotstest.Robots{Status: 404, Body: page, Header: http.Header{"Content-Encoding": {"br"}}}, "unavailable 404 /open /private", ""},
		{"2.3.1.3/404 whose body breaks off", robotstest.Robots{Handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(404)
		}}, "unavailable 404 /open /private", ""},
		{"2.3.1.3/departure: 429", status(429), "unreachable 429 destination_unavailable", ""},
		{"2.3.1.2/300 is no redirect", robotstest.Robots{Status: 300, Body: file}, "unavailable 300 /open /private", ""},
		{"9110 15.4.5/304 was not asked for", robotstest.Robots{Status: 304}, "unreachable 304 http_protocol_error", ""},
	}
	for _, code := range []int{400, 402, 404, 405, 410, 418, 451, 499} {
		rows = append(rows, row{fmt.Sprintf("2.3.1.3/%d", code), status(code), fmt.Sprintf("unavailable %d /open /private", code), ""})
	}
	for _, code := range []int{500, 501, 502, 503, 504, 520, 599, 600, 999} {
		rows = append(rows, row{fmt.Sprintf("2.3.1.4/%d", code), status(code), fmt.Sprintf("unreachable %d destination_unavailable", code), ""})
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			site.SetRobots("a.example", row.robots)
			for _, from := range []string{"http://a.example", "https://a.example"} {
				if got := outline(fetched(t, f, from)); got != row.want {
					t.Errorf("Fetch(%s) = %s, want %s", from, got, row.want)
				}
			}
			if row.strict == "" {
				return
			}
			snap := fetched(t, strict, "http://a.example")
			if got := outline(snap); got != row.strict {
				t.Errorf("with everything refused: Fetch = %s, want %s", got, row.strict)
			}
			if v := snap.Rules.Agent("TestBot").Verdict("/private"); snap.Availability == robots.Unreachable && !v.Allowed {
				t.Errorf("with everything refused: a rule counts, line %d: %s", v.Line, v.Rule)
			}
		})
	}
}

// TestFetchRequest says what an origin sees of us.
func TestFetchRequest(t *testing.T) {
	site := robotstest.New(t)
	site.SetRobots("", robotstest.Robots{Body: file})
	f := newFetcher(t, site, nil)
	fetched(t, f, "http://a.example")
	fetched(t, f, fmt.Sprintf("https://b.example:%d", site.TLSPort()))
	var got []string
	for _, r := range site.Requests() {
		got = append(got, r.String()+" "+r.UserAgent)
	}
	want := []string{
		"GET http://a.example/robots.txt 200 robotsproxy/test",
		fmt.Sprintf("GET https://b.example:%d/robots.txt 200 robotsproxy/test", site.TLSPort()),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// TestAsker names who asks for whom, and lets nothing else into the request.
func TestAsker(t *testing.T) {
	site := robotstest.New(t)
	site.SetRobots("a.example", robotstest.Robots{Redirect: "http://b.example/robots.txt"})
	site.SetRobots("b.example", robotstest.Robots{Body: file})
	f := newFetcher(t, site, nil)
	o := mustOrigin(t, "http://a.example")
	for _, row := range []struct{ asker, want string }{
		{"", "robotsproxy/test"},
		{"NewsBot", "NewsBot robotsproxy/test"},
		{"News-Bot_2.0", "News-Bot_2.0 robotsproxy/test"},
		{"NewsBot\r\nX: y", "robotsproxy/test"},
		{"NewsBot\n", "robotsproxy/test"},
		{"News Bot", "robotsproxy/test"},
		{"NewsBot (x)", "robotsproxy/test"},
		{"B\u00f6t", "robotsproxy/test"},
		{"\x00", "robotsproxy/test"},
	} {
		site.Reset()
		if _, err := f.Fetch(t.Context(), fetch.Request{Origin: o, Asker: robots.Asker{Token: row.asker}}); err != nil {
			t.Errorf("Fetch for %q: %v", row.asker, err)
		}
		requests := site.Requests()
		if len(requests) != 2 || requests[0].UserAgent != row.want || requests[1].UserAgent != row.want {
			t.Errorf("Fetch for %q: %v, want %q at both hops", row.asker, requests, row.want)
		}
	}
	c := newCache(t, robots.CacheOptions{Fetch: f.Fetch})
	for _, asker := range []string{"First", "Second"} {
		site.Reset()
		if _, err := c.Snapshot(t.Context(), o, robots.Asker{Token: asker}); err != nil {
			t.Error(err)
		}
		if requests := site.Requests(); asker == "First" && requests[0].UserAgent != "First robotsproxy/test" || asker == "Second" && len(requests) != 0 {
			t.Errorf("%s had %v asked", asker, requests)
		}
	}
}

// chain has n redirects between hosts, by turns over HTTP and HTTPS, and the file at its end.
func chain(site *robotstest.Site, n int) {
	for i := range n {
		scheme := []string{"https", "http"}[i%2]
		to := fmt.Sprintf("%s://hop-%d.example/robots.txt", scheme, i+1)
		site.SetRobots(fmt.Sprintf("hop-%d.example", i), robotstest.Robots{Redirect: to, Status: []int{301, 302, 303, 307, 308}[i%5]})
	}
	site.SetRobots(fmt.Sprintf("hop-%d.example", n), robotstest.Robots{Body: file})
}

func TestRedirects(t *testing.T) {
	for _, row := range []struct {
		name      string
		hops, max int
		want      string
		requests  int
	}{
		{"2.3.1.2/none", 0, 0, "found 200 /open", 1},
		{"2.3.1.2/one", 1, 0, "found 200 /open", 2},
		{"2.3.1.2/five", 5, 0, "found 200 /open", 6},
		{"2.3.1.2/six", 6, 0, "unavailable 301 /open /private", 6},
		{"2.3.1.2/as many as configured", 7, 7, "found 200 /open", 8},
	} {
		t.Run(row.name, func(t *testing.T) {
			site := robotstest.New(t)
			chain(site, row.hops)
			snap := fetched(t, newFetcher(t, site, func(o *fetch.Options) { o.MaxRedirects = row.max }), "http://hop-0.example")
			if got := outline(snap); got != row.want {
				t.Errorf("Fetch = %s, want %s", got, row.want)
			}
			if got := len(site.Requests()); got != row.requests {
				t.Errorf("%d requests, want %d", got, row.requests)
			}
			if got := len(snap.Redirects); got != row.requests-1 {
				t.Errorf("Redirects = %q, want %d", snap.Redirects, row.requests-1)
			}
			if got := snap.Origin.String(); got != "http://hop-0.example" {
				t.Errorf("Origin = %s, want the one that was asked first", got)
			}
		})
	}
}

func TestLocation(t *testing.T) {
	site := robotstest.New(t)
	f := newFetcher(t, site, nil)
	for _, row := range []struct{ name, to, want, visited string }{
		{"9110 10.2.2/relative path", "/r", "found 200 /open", "http://a.example/r"},
		{"9110 10.2.2/relative to the file", "r?x=%2F#part", "found 200 /open", "http://a.example/r?x=%2F"},
		{"9110 10.2.2/another host", "//b.example/r", "found 200 /open", "http://b.example/r"},
		{"2.3.1.2/escapes stay", "http://b.example/r%2fs%20t", "found 200 /open", "http://b.example/r%2fs%20t"},
		{"2.3.1.2/to HTTPS", "HTTPS://B.Example:443/r", "found 200 /open", "https://b.example/r"},
		{"2.3.1.2/no path", "https://c.example", "found 200 /open", "https://c.example"},
		{"2.3.1.2/userinfo is not sent on", "http://u:secret@b.example/r", "found 200 /open", "http://b.example/r"},
		{"2.3.1.2/a page", "/page/1", "html 200 /open /private", "http://a.example/page/1"},
		{"2.3.1.2/to 404", "/none", "unavailable 404 /open /private", "http://a.example/none"},
		{"2.3.1.2/to 503", "/status/503", "unreachable 503 destination_unavailable", "http://a.example/status/503"},
		{"2.3.1.2/to itself", "/robots.txt", "unavailable 301 /open /private", ""},
		{"2.3.1.2/to itself, told apart by a fragment alone", "#again", "unavailable 301 /open /private", ""},
		{"2.3.1.2/nowhere", "", "unavailable 301 /open /private", ""},
		{"2.3.1.2/another scheme", "ftp://a.example/robots.txt", "unreachable 0 http_request_denied", ""},
		{"2.3.1.2/a file", "file:///etc/passwd", "unreachable 0 http_request_denied", ""},
		{"2.3.1.2/no URL", "http://a b/", "unreachable 0 http_request_denied", ""},
		{"2.3.1.2/no host", "http:///robots.txt", "unreachable 0 http_request_denied", ""},
		{"2.3.1.2/no port", "http://b.example:99999/r", "unreachable 0 http_request_denied", ""},
		{"2.3.1.2/port 0", "http://b.example:0/r", "unreachable 0 http_request_denied", ""},
		{"2.3.1.2/a bad escape", "http://b.example/%zz", "unreachable 0 http_request_denied", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			serve := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, file) }
			site.SetPage("", "/r", serve)
			site.SetPage("", "/r%2fs%20t", serve)
			site.SetPage("c.example", "/", serve)
			site.SetRobots("a.example", robotstest.Robots{Handler: func(w http.ResponseWriter, _ *http.Request) {
				if row.to != "" {
					w.Header().Set("Location", row.to)
				}
				w.WriteHeader(301)
				fmt.Fprint(w, file)
			}})
			snap := fetched(t, f, "http://a.example")
			if got := outline(snap); got != row.want {
				t.Errorf("Location %q: Fetch = %s, want %s", row.to, got, row.want)
			}
			if got := strings.Join(snap.Redirects, " "); got != row.visited {
				t.Errorf("Location %q: Redirects = %q, want %q", row.to, got, row.visited)
			}
		})
	}
}

func TestRedirectLoop(t *testing.T) {
	site := robotstest.New(t)
	site.SetRobots("a.example", robotstest.Robots{Redirect: "https://b.example/robots.txt"})
	site.SetRobots("b.example", robotstest.Robots{Redirect: "http://a.example/robots.txt"})
	snap := fetched(t, newFetcher(t, site, nil), "http://a.example")
	if got, want := outline(snap), "unavailable 301 /open /private"; got != want {
		t.Errorf("Fetch = %s, want %s", got, want)
	}
	if got := len(site.Requests()); got != 2 {
		t.Errorf("%d requests, want 2: the third would have been the first again", got)
	}
}

var errProhibited = errors.New("the address is private")

// guarded is a transport that dials no host whose name begins with "private".
func guarded(t *testing.T, site *robotstest.Site) *http.Transport {
	transport := site.Transport()
	t.Cleanup(transport.CloseIdleConnections)
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if strings.HasPrefix(addr, "private") {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errProhibited}
		}
		return dial(ctx, network, addr)
	}
	return transport
}

func TestProhibited(t *testing.T) {
	site := robotstest.New(t)
	site.SetRobots("", robotstest.Robots{Body: file})
	site.SetRobots("a.example", robotstest.Robots{Redirect: "http://private.example/robots.txt"})
	f := newFetcherOver(t, guarded(t, site), func(o *fetch.Options) {
		o.Prohibited = func(err error) bool { return errors.Is(err, errProhibited) }
	})
	c := newCache(t, robots.CacheOptions{Fetch: f.Fetch})

	snap, err := c.Snapshot(t.Context(), mustOrigin(t, "http://private.example"), robots.Asker{})
	if snap != nil || !errors.Is(err, errProhibited) {
		t.Errorf("prohibited origin: Snapshot = %v, %v, want the guard's error", snap, err)
	}
	if got := c.Stats(); got.Failures != 0 {
		t.Errorf("prohibited origin: %+v, want no failure, since nothing is known of the file", got)
	}
	snap, err = c.Snapshot(t.Context(), mustOrigin(t, "http://a.example"), robots.Asker{})
	if err != nil {
		t.Fatalf("prohibited redirect: Snapshot: %v", err)
	}
	if got, want := outline(snap), "unreachable 0 destination_ip_prohibited"; got != want || !errors.Is(snap.Err, errProhibited) {
		t.Errorf("prohibited redirect: Snapshot = %s (%v), want %s", got, snap.Err, want)
	}
	if snap.Expires.Sub(snap.Fetched) != time.Minute {
		t.Errorf("prohibited redirect: kept for %v, want a minute", snap.Expires.Sub(snap.Fetched))
	}
}

func TestFetchEndsWithItsContext(t *testing.T) {
	site := robotstest.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	site.SetRobots("", robotstest.Robots{Handler: func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}})
	snap, err := newFetcher(t, site, nil).Fetch(ctx, fetch.Request{Origin: mustOrigin(t, "http://a.example")})
	if snap != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("Fetch = %v, %v, want %v", snap, err, context.Canceled)
	}
}

func TestNewFetcherRefuses(t *testing.T) {
	for _, row := range []struct {
		name string
		o    fetch.Options
	}{
		{"no transport", fetch.Options{UserAgent: "a"}},
		{"no agent", fetch.Options{Transport: http.DefaultTransport}},
		{"2.4/more than a day", fetch.Options{Transport: http.DefaultTransport, UserAgent: "a", TTL: 25 * time.Hour}},
	} {
		if f, err := fetch.New(row.o); f != nil || err == nil {
			t.Errorf("%s: NewFetcher = %v, %v, want an error", row.name, f, err)
		}
	}
	if c, err := robots.NewCache(robots.CacheOptions{}); c != nil || err == nil {
		t.Errorf("NewCache without Fetch = %v, %v, want an error", c, err)
	}
}

// TestZeroSnapshot holds that nothing is allowed by what nobody filled in.
func TestZeroSnapshot(t *testing.T) {
	if s := new(robots.Snapshot); s.Availability != robots.Unreachable || s.State() != "unreachable" {
		t.Errorf("Snapshot{} is %s, want unreachable", s.State())
	}
}

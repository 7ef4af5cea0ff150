package robotstest_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

func TestSetRobots(t *testing.T) {
	site, client := start(t)
	site.SetRobots("body.example", robotstest.Robots{Body: "Disallow: /"})
	site.SetRobots("Status.Example", robotstest.Robots{Status: 503, Header: http.Header{"retry-after": {"7"}}})
	site.SetRobots("moved.example", robotstest.Robots{Redirect: "http://body.example/robots.txt"})
	site.SetRobots("found.example", robotstest.Robots{Redirect: "/r", Status: 302})
	site.SetRobots("html.example", robotstest.Robots{Body: "<p>", Header: http.Header{"Content-Type": {"text/html"}}})
	site.SetRobots("handler.example", robotstest.Robots{Handler: func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "own") }})
	site.SetRobots("again.example", robotstest.Robots{Body: "old"})
	site.SetRobots("again.example", robotstest.Robots{Body: "new"})
	site.SetPage("catch-all.example", "", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })

	const text = "text/plain; charset=utf-8"
	for _, row := range []struct {
		host       string
		status     int
		body, name string // name of a field, with its value
		value      string
	}{
		{"body.example", 200, "Disallow: /", "Content-Type", text},
		{"status.example", 503, "", "Retry-After", "7"},
		{"moved.example", 301, "", "Location", "http://body.example/robots.txt"},
		{"found.example", 302, "", "Location", "/r"},
		{"html.example", 200, "<p>", "Content-Type", "text/html"},
		{"handler.example", 200, "own", "Content-Type", text},
		{"again.example", 200, "new", "Content-Type", text},
		{"unset.example", 404, "404 page not found\n", "Content-Type", text},
		{"catch-all.example", 404, "404 page not found\n", "Content-Type", text},
	} {
		res, body := get(t, client, "http://"+row.host+"/robots.txt")
		if value := res.Header.Get(row.name); res.StatusCode != row.status || body != row.body || value != row.value {
			t.Errorf("robots.txt of %s = %d %q with %s: %q, want %d %q with %q",
				row.host, res.StatusCode, body, row.name, value, row.status, row.body, row.value)
		}
	}
}

func TestRobotsDelay(t *testing.T) {
	site, client := start(t)
	site.SetRobots("slow.example", robotstest.Robots{Delay: 30 * time.Millisecond, Body: "late"})
	if _, body := get(t, client, "http://slow.example/robots.txt"); body != "late" {
		t.Errorf("body = %q, want late", body)
	}
	if r := site.Requests()[0]; r.End.Sub(r.Start) < 30*time.Millisecond {
		t.Errorf("the answer took %v, want 30ms at least", r.End.Sub(r.Start))
	}
}

// TestPrecedence has the most particular of what SetRobots and SetPage said answer.
func TestPrecedence(t *testing.T) {
	site, client := start(t)
	say := func(word string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, word) }
	}
	port := fmt.Sprintf("a.example:%d", site.Port())
	site.SetRobots("", robotstest.Robots{Body: "all"})
	site.SetRobots("a.example", robotstest.Robots{Body: "name"})
	site.SetRobots(port, robotstest.Robots{Body: "port"})
	site.SetPage("a.example", "/page/1", say("page"))
	site.SetPage("a.example", "", say("any of a"))
	site.SetPage("", "/page/2", say("page of all"))
	site.SetPage("a.example", "/a%2Fb", say("escaped"))

	for url, want := range map[string]string{
		"http://b.example/robots.txt":    "all",
		"http://a.example/robots.txt":    "name",
		"http://A.Example./robots.txt":   "name",
		"http://" + port + "/robots.txt": "port",
		"http://a.example/page/1?q":      "page",
		"http://a.example/page/2":        "page of all",
		"http://a.example/page/3":        "any of a",
		"http://a.example/a%2Fb":         "escaped",
		"http://a.example/a/b":           "any of a",
		"http://b.example/status/299":    "status 299\n",
	} {
		if _, body := get(t, client, url); body != want {
			t.Errorf("Get(%s) = %q, want %q", url, body, want)
		}
	}
}

package robots_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// vector is a line of the conformance vectors that is about getting the file.
type vector struct {
	Name, Kind string
	Status     int
	Error      string
	Count      int
	AgeHours   int `json:"age_hours"`
	Headers    map[string]string
	Default    int
	Minimum    int
	Expect     any
}

// departures are vectors, by kind and question, that we contradict, and why.
var departures = map[string]string{
	"fetch_status 429": "a server that asks for fewer requests does not allow all of them; Google's crawler does the same",
}

func (v *vector) question() string {
	switch v.Kind {
	case "fetch_status":
		return fmt.Sprint(v.Kind, " ", v.Status)
	case "fetch_error":
		return fmt.Sprint(v.Kind, " ", v.Error)
	case "fetch_redirects":
		return fmt.Sprint(v.Kind, " ", v.Count)
	case "unreachable_age":
		return fmt.Sprint(v.Kind, " ", v.AgeHours, " h")
	default:
		return fmt.Sprint(v.Kind, " ", v.Headers)
	}
}

var checks = map[string]func(*testing.T, *vector) error{
	"fetch_status":    checkStatus,
	"fetch_error":     checkError,
	"fetch_redirects": checkRedirects,
	"unreachable_age": checkAge,
	"cache_ttl":       checkTTL,
}

func TestConformanceVectors(t *testing.T) {
	passed := map[string]int{}
	for i, v := range readVectors(t) {
		check, ok := checks[v.Kind]
		if !ok {
			continue // for package rules
		}
		err := check(t, &v)
		reason, departs := departures[v.question()]
		switch {
		case departs && err == nil:
			t.Errorf("rfc9309.jsonl:%d (%s) %s passes, and is listed as a departure: %s", i+1, v.Name, v.question(), reason)
		case !departs && err != nil:
			t.Errorf("rfc9309.jsonl:%d (%s) %s: %v", i+1, v.Name, v.question(), err)
		case !departs:
			passed[v.Kind]++
		}
	}
	t.Logf("passed: %v", passed)
	for kind := range checks {
		if passed[kind] == 0 {
			t.Errorf("no vector of kind %s", kind)
		}
	}
}

func readVectors(t *testing.T) (vectors []vector) {
	dir := os.Getenv("CONFORMANCE_VECTORS")
	if dir == "" {
		t.Skip("CONFORMANCE_VECTORS is not set: it names the folder of conformance vectors (*.jsonl)")
	}
	f, err := os.Open(filepath.Join(dir, "rfc9309.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Buffer(nil, 16<<20); lines.Scan(); {
		var v vector
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		vectors = append(vectors, v)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return vectors
}

// meaning is a Snapshot of file in the words of the vectors.
func meaning(snap *robots.Snapshot) string {
	switch {
	case snap.Availability == robots.Found && allowed(snap, "/open") && !allowed(snap, "/private"):
		if len(snap.Redirects) > 0 {
			return "follow"
		}
		return "parse"
	case allowed(snap, "/open") && allowed(snap, "/private"):
		return "allow_all"
	case !allowed(snap, "/open") && !allowed(snap, "/private"):
		return "disallow_all"
	default:
		return outline(snap)
	}
}

func expect(v *vector, got any) error {
	if got != v.Expect {
		return fmt.Errorf("got %v, want %v", got, v.Expect)
	}
	return nil
}

func checkStatus(t *testing.T, v *vector) error {
	site := robotstest.New(t)
	site.SetPage("", "/r", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, file) })
	site.SetRobots("", robotstest.Robots{Handler: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/r")
		w.WriteHeader(v.Status)
		io.WriteString(w, file)
	}})
	snap := fetched(t, newFetcher(t, site, nil), "http://a.example")
	if v.Status == http.StatusNoContent && snap.State() == "empty" {
		return expect(v, "parse") // a file without a line
	}
	return expect(v, meaning(snap))
}

// checkError has the errors that TestFailures gets from real connections.
func checkError(t *testing.T, v *vector) error {
	errs := map[string]error{
		"dns":             &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", IsNotFound: true}},
		"connect_refused": &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
		"timeout":         os.ErrDeadlineExceeded,
		"tls":             errors.New("remote error: tls: handshake failure"),
		"truncated_body":  nil,
	}
	err, ok := errs[v.Error]
	if !ok {
		return errors.New("an error that this test does not know")
	}
	var transport http.RoundTripper = roundTripper(func(*http.Request) (*http.Response, error) { return nil, err })
	if v.Error == "truncated_body" {
		site := robotstest.New(t)
		site.SetRobots("", robotstest.Robots{Handler: robotstest.Truncate})
		transport = site.Transport()
	}
	return expect(v, meaning(fetched(t, newFetcherOver(t, transport, nil), "http://a.example")))
}

func checkRedirects(t *testing.T, v *vector) error {
	site := robotstest.New(t)
	chain(site, v.Count)
	got := meaning(fetched(t, newFetcher(t, site, nil), "http://hop-0.example"))
	if got == "follow" {
		got = "parse"
	}
	return expect(v, got)
}

// checkAge asks at every hour about an origin that has been unreachable since the first, with either choice of what it
// comes to.
func checkAge(t *testing.T, v *vector) error {
	want := map[bool]string{false: "disallow_all", true: "disallow_all"}
	switch v.Expect {
	case "disallow_all":
	case "may_allow_all_or_keep_cache":
		want[true] = "allow_all"
	default:
		return fmt.Errorf("an answer that this test does not know: %v", v.Expect)
	}
	for _, allows := range []bool{false, true} {
		if got := atAge(t, v.AgeHours, allows); got != want[allows] {
			return fmt.Errorf("UnreachableAllows %v: got %s, want %s", allows, got, want[allows])
		}
	}
	return nil
}

// atAge is what an origin without a copy means after so many hours.
func atAge(t *testing.T, hours int, allows bool) (got string) {
	synctest.Test(t, func(t *testing.T) {
		o := mustOrigin(t, "http://a.example")
		c := newCache(t, robots.CacheOptions{Fetch: fails(), UnreachableAllows: allows})
		lookUp(t, c, o)
		for range hours {
			time.Sleep(time.Hour)
			got = meaning(lookUp(t, c, o))
		}
	})
	return got
}

func checkTTL(t *testing.T, v *vector) (err error) {
	synctest.Test(t, func(t *testing.T) {
		h := http.Header{}
		for name, value := range v.Headers {
			h.Set(name, value)
		}
		got := kept(t, answering{status: 200, header: h}, func(o *fetch.Options) {
			o.TTL = time.Duration(v.Default) * time.Second
			o.MinTTL = max(time.Duration(v.Minimum)*time.Second, 1) // 0 stands for the default
		})
		err = expect(v, got.Seconds())
	})
	return err
}

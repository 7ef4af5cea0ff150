package dashboard

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/rules"
	"github.com/robotsproxy/robotsproxy/store"
)

const token = "0123456789abcdef-of-tests"

// hostile is a text that pages must escape.
const hostile = `<script>alert(1)</script>`

// keptRecords returns a store with n records of the last seconds, of which each third is refused, and their IDs.
func keptRecords(t *testing.T, n int) (*store.Records, []audit.ID) {
	t.Helper()
	records, err := store.OpenRecords(store.RecordsOptions{Path: filepath.Join(t.TempDir(), "audit.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := records.Close(); err != nil {
			t.Error(err)
		}
	})
	var (
		ids     audit.Sequence
		entries []audit.Entry
		all     []audit.ID
	)
	for i := range n {
		r := newRecord(ids.Next(time.Now()), i)
		entries, all = append(entries, audit.Entry{Record: r}), append(all, r.ID)
	}
	if err := records.Write(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	return records, all
}

var robotsBody = []byte("# " + hostile + "\nUser-agent: *\nDisallow: /private/\nCrawl-delay: 2\n")

// newSnapshot returns the robots.txt of all records.
var newSnapshot = sync.OnceValue(func() *robots.Snapshot {
	o, err := origin.Parse("http://a.example")
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256(robotsBody)
	return &robots.Snapshot{Answer: robots.Answer{
		Origin: o, Availability: robots.Found, Status: 200, Body: robotsBody, SHA256: hex.EncodeToString(sum[:]), Fetched: time.Now().Truncate(time.Microsecond),
	}}
})

func newRecord(id audit.ID, i int) audit.Record {
	at := id.Time()
	r := audit.Record{
		ID: id, Time: at, Client: "news", Agent: "NewsBot", UserAgent: hostile, Method: "GET", Host: "a.example", Scheme: "http", Port: 80,
		Path: fmt.Sprintf("/p%d%s", i, hostile), Via: audit.Plain, Mode: "enforce",
	}
	d := policy.Decision{Outcome: policy.Allow}
	if i%3 == 0 {
		r.Path = fmt.Sprintf("/private/%d", i)
		d.Outcome, d.Reason, d.Verdict = policy.Deny, policy.ReasonRobots, rules.Verdict{Line: 3, Rule: "Disallow: /private/"}
	}
	r.SetDecision(d, newSnapshot())
	r.EndedAt, r.Status = at, 200
	return r
}

// serve returns an admin listener with the pages of o.
func serve(t *testing.T, o Options) *httptest.Server {
	t.Helper()
	o.Token = token
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	h, err := admin.New(admin.Options{Token: token, Dashboard: d.Register, Hosts: []string{"proxy.example"}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server
}

// get returns the response to r, and its body.
func do(t *testing.T, r *http.Request) (*http.Response, string) {
	t.Helper()
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var b strings.Builder
	buf := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buf)
		b.Write(buf[:n])
		if err != nil {
			return resp, b.String()
		}
	}
}

func request(t *testing.T, method, target string, form url.Values) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return r
}

func get(t *testing.T, target string) (*http.Response, string) {
	t.Helper()
	return do(t, request(t, http.MethodGet, target, nil))
}

func TestPages(t *testing.T) {
	records, _ := keptRecords(t, 250)
	server := serve(t, Options{Records: records, State: func() admin.State { return admin.State{Mode: "report", Listen: "http://127.0.0.1:3128"} }})
	for path, want := range map[string][]string{
		"/":                             {"Most blocked hosts", "line 3  Disallow: /private/", "a.example", "250", "Mode report"},
		"/?range=7d":                    {"Last 7 days"},
		"/decisions":                    {"250 requests, 84 blocked", "Older", "data-live=\"/live?\""},
		"/decisions?decision=deny":      {"84 requests", "Remove the filter decision", "data-live=\"/live?decision=deny\""},
		"/decisions?host=other.example": {"No request of this period has these filters"},
		"/signin":                       {"admin.token"},
	} {
		resp, body := get(t, server.URL+path)
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s\n%s", path, resp.Status, body)
		}
		for _, text := range want {
			if !strings.Contains(body, text) {
				t.Errorf("%s: the page does not contain %q\n%s", path, text, body)
			}
		}
		if strings.Contains(body, hostile) {
			t.Errorf("%s: the page has a script of a request", path)
		}
		if policy := resp.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'self'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: Content-Security-Policy is %q", path, policy)
		}
	}
}

func TestBadParameters(t *testing.T) {
	records, _ := keptRecords(t, 1)
	server := serve(t, Options{Records: records})
	for path, want := range map[string]string{
		"/?range=2h":                           "range &#34;2h&#34; is not one of",
		"/?since=soon":                         "since &#34;soon&#34; is no time",
		"/decisions?decision=denied":           "is not one of allow, deny",
		"/decisions?after=x":                   "after: ",
		"/decisions?since=1h&until=2026-01-01": "is not before until",
	} {
		if resp, body := get(t, server.URL+path); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%s: %s, want %s\n%s", path, resp.Status, want, body)
		}
	}
}

func TestOlder(t *testing.T) {
	records, ids := keptRecords(t, 250)
	server := serve(t, Options{Records: records})
	seen := make(map[string]bool)
	for path := "/decisions"; path != ""; {
		_, body := get(t, server.URL+path)
		for _, id := range ids {
			if strings.Contains(body, `data-id="`+id.String()) {
				if seen[id.String()] {
					t.Errorf("%s: %s was on a page before", path, id)
				}
				seen[id.String()] = true
			}
		}
		_, rest, _ := strings.Cut(body, `<nav class="pages" aria-label="More"><a class="button" href="`)
		path, _, _ = strings.Cut(rest, `"`)
	}
	if len(seen) != len(ids) {
		t.Errorf("%d of %d records were on the pages", len(seen), len(ids))
	}
}

func TestNoRecords(t *testing.T) {
	server := serve(t, Options{Store: "none"})
	for _, path := range []string{"/", "/decisions"} {
		if resp, body := get(t, server.URL+path); resp.StatusCode != http.StatusNotFound || !strings.Contains(body, "audit.store is none") {
			t.Errorf("%s: %s\n%s", path, resp.Status, body)
		}
	}
	records, _ := keptRecords(t, 0)
	server = serve(t, Options{Records: records, State: func() admin.State { return admin.State{Listen: "http://127.0.0.1:3128"} }})
	if _, body := get(t, server.URL+"/"); !strings.Contains(body, "Nothing has come through yet") || !strings.Contains(body, "export http_proxy=http://127.0.0.1:3128") {
		t.Errorf("without records:\n%s", body)
	}
}

func TestSearch(t *testing.T) {
	for text, want := range map[string]string{
		"a.example":                          "/decisions?host=a.example",
		"host:a.example agent:NewsBot":       "/decisions?agent=NewsBot&host=a.example",
		`rule:"Disallow: /private/" /p`:      "/decisions?path=%2Fp&rule=Disallow%3A+%2Fprivate%2F",
		"reason:robots  decision:deny,error": "/decisions?decision=deny%2Cerror&reason=robots",
		"":                                   "/decisions?",
	} {
		if to, ok := searched(url.Values{"q": {text}}); !ok || to != want {
			t.Errorf("searched(%q) = %q, want %q", text, to, want)
		}
	}
}

// From elsewhere pages need the token, or a session that began with it.
func TestSignIn(t *testing.T) {
	records, _ := keptRecords(t, 3)
	server := serve(t, Options{Records: records, State: func() admin.State { return admin.State{Mode: "report"} }})
	elsewhere := func(method, path string, form url.Values) *http.Request {
		r := request(t, method, server.URL+path, form)
		r.Host = "proxy.example"
		return r
	}
	for _, path := range []string{"/", "/decisions", "/live"} {
		if resp, body := do(t, elsewhere("GET", path, nil)); resp.StatusCode != http.StatusUnauthorized || strings.Contains(body, "a.example") || strings.Contains(body, "Mode report") {
			t.Errorf("%s without a token: %s\n%s", path, resp.Status, body)
		}
	}
	for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "Via"} {
		forwarded := request(t, "GET", server.URL+"/", nil)
		forwarded.Header.Set(name, "192.0.2.1")
		if resp, _ := do(t, forwarded); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("with %s, without a token: %s", name, resp.Status)
		}
	}
	bearer := elsewhere("GET", "/", nil)
	bearer.Header.Set("Authorization", "Bearer "+token)
	if resp, _ := do(t, bearer); resp.StatusCode != http.StatusOK {
		t.Errorf("with the token: %s", resp.Status)
	}
	if resp, body := do(t, elsewhere("POST", "/signin", url.Values{"token": {"wrong"}})); resp.StatusCode != http.StatusUnauthorized || !strings.Contains(body, "not the token") || len(resp.Cookies()) != 0 {
		t.Errorf("with a wrong token: %s", resp.Status)
	}
	resp, _ := do(t, elsewhere("POST", "/signin", url.Values{"token": {" " + token + "\n"}, "next": {"/decisions?host=a.example"}}))
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/decisions?host=a.example" || len(resp.Cookies()) != 1 {
		t.Fatalf("signing in: %s, %v", resp.Status, resp.Header)
	}
	cookie := resp.Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || strings.Contains(cookie.Value, token) {
		t.Errorf("cookie %v", cookie)
	}
	withCookie := elsewhere("GET", "/", nil)
	withCookie.AddCookie(cookie)
	if resp, _ := do(t, withCookie); resp.StatusCode != http.StatusOK {
		t.Errorf("with a session: %s", resp.Status)
	}
	for _, value := range []string{cookie.Value + "A", cookie.Value[1:], strings.ToLower(cookie.Value), ""} {
		forged := elsewhere("GET", "/", nil)
		forged.AddCookie(&http.Cookie{Name: sessionCookie, Value: value})
		if resp, _ := do(t, forged); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("with the cookie %q: %s", value, resp.Status)
		}
	}
	signOut := elsewhere("POST", "/signout", nil)
	signOut.AddCookie(cookie)
	if resp, _ := do(t, signOut); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("signing out: %s", resp.Status)
	}
	if resp, _ := do(t, withCookie); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("with a session that was signed out: %s", resp.Status)
	}
	cross := elsewhere("POST", "/signin", url.Values{"token": {token}})
	cross.Header.Set("Sec-Fetch-Site", "cross-site")
	if resp, _ := do(t, cross); resp.StatusCode != http.StatusForbidden {
		t.Errorf("from another site: %s", resp.Status)
	}
}

func TestSessionsEnd(t *testing.T) {
	var s sessions
	begin := time.Now()
	first := s.begin(begin)
	if !s.has(first, begin.Add(sessionTime-time.Second)) || s.has(first, begin.Add(sessionTime)) || s.has("", begin) {
		t.Error("a session does not end at its end")
	}
	var last string
	for i := range maxSessions {
		last = s.begin(begin.Add(time.Duration(i+1) * time.Second))
	}
	if len(s.ends) != maxSessions || s.has(first, begin) || !s.has(last, begin) {
		t.Errorf("%d sessions, want %d, without the first", len(s.ends), maxSessions)
	}
}

func TestOwnPath(t *testing.T) {
	for next, want := range map[string]string{
		"/decisions?host=a": "/decisions?host=a", "": "/", "//evil.example": "/", `/\evil.example`: "/", "http://evil.example/": "/", "decisions": "/",
	} {
		if got := ownPath(next); got != want {
			t.Errorf("ownPath(%q) = %q, want %q", next, got, want)
		}
	}
}

// An open page receives the requests of its filter, and costs nothing when it is closed.
func TestLive(t *testing.T) {
	live := new(Live)
	server := serve(t, Options{Live: live})
	r := request(t, "GET", server.URL+"/live?decision=deny", nil)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var ids audit.Sequence
	for i := range 3 * (maxBurst + 5) {
		record := newRecord(ids.Next(time.Now()), i)
		live.Observe(&record)
	}
	var text strings.Builder
	buf := make([]byte, 32<<10)
	for !strings.Contains(text.String(), "event: skipped") {
		n, err := resp.Body.Read(buf)
		if err != nil {
			t.Fatal(err, text.String())
		}
		text.Write(buf[:n])
	}
	if n := strings.Count(text.String(), "event: row\n"); n != maxBurst || !strings.Contains(text.String(), "data: 5\n") {
		t.Errorf("%d rows arrived, want %d, and 5 skipped\n%s", n, maxBurst, text.String())
	}
	if strings.Contains(text.String(), "/p1") || strings.Contains(text.String(), hostile) {
		t.Errorf("requests that the filter does not select, or a script:\n%s", text.String())
	}
	resp.Body.Close()
	for range 500 {
		if live.watched.Load() == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the stream of a closed page is still open")
}

func TestStatic(t *testing.T) {
	server := serve(t, Options{})
	for name, kind := range map[string]string{"style.css": "text/css", "dashboard.js": "javascript", "uplot.min.js": "javascript", "htmx.min.js": "javascript", "icon.svg": "image/svg+xml"} {
		resp, body := get(t, server.URL+"/static/"+name)
		if resp.StatusCode != http.StatusOK || !strings.Contains(resp.Header.Get("Content-Type"), kind) || body == "" || !strings.Contains(resp.Header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %s %v", name, resp.Status, resp.Header)
		}
	}
	if resp, _ := get(t, server.URL+"/static/none.js"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a file that does not exist: %s", resp.Status)
	}
}

// The files of others are those that vendor.txt names.
func TestVendored(t *testing.T) {
	n := 0
	for l := range strings.Lines(string(statics["vendor.txt"])) {
		f := strings.Fields(l)
		if len(f) != 4 {
			t.Fatalf("vendor.txt has the line %q", l)
		}
		n++
		if sum := sha256.Sum256(statics[f[1]]); hex.EncodeToString(sum[:]) != f[0] {
			t.Errorf("%s has another SHA-256 than vendor.txt; make vendor-web fetches it again", f[1])
		}
	}
	if n != 3 {
		t.Errorf("vendor.txt names %d files, want 3", n)
	}
}

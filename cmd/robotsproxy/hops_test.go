package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
	"github.com/robotsproxy/robotsproxy/policy"
)

// secret is the content of pages that must not be read. Its second line would be a rule.
const secret = "the secret page\nUser-agent: *\nDisallow: /closed\nPassword: hunter2\n"

// redirected is a site whose hosts evil-N.example redirect their robots.txt to a URL of victim.example, and the
// program in front of it.
type redirected struct {
	*server
	site *robotstest.Site
	n    int
}

// redirect starts n hosts that redirect to target, of a victim with this robots.txt, under a configuration.
func redirect(t *testing.T, n int, target, victim, config string) *redirected {
	t.Helper()
	site := robotstest.New(t)
	r := &redirected{site: site, n: n}
	names := []string{"victim.example", "other.example"}
	for i := range n {
		host := fmt.Sprintf("evil-%d.example", i)
		names = append(names, host)
		site.SetRobots(host, robotstest.Robots{Status: 302, Redirect: r.at("victim.example", target)})
	}
	site.SetRobots("victim.example", robotstest.Robots{Body: victim})
	site.SetPage("victim.example", "", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/x-page; charset=utf-8")
		w.Header().Set("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT")
		io.WriteString(w, secret)
	})
	site.SetPage("", "", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "a page") })
	r.server = serveFor(t, site, names, config)
	return r
}

// at returns the URL of a target on host.
func (r *redirected) at(host, target string) string {
	return fmt.Sprintf("http://%s:%d%s", host, r.site.Port(), target)
}

// restart stops the program, and starts it again with the same data.
func (r *redirected) restart(t *testing.T) {
	t.Helper()
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	args := r.cmd.Args
	again, err := startServer(r.dir, r.cmd.Env, args[len(args)-2:]...) // --config
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.stop() })
	r.server = again
}

// evil asks the i-th of the hosts for a target.
func (r *redirected) evil(t *testing.T, i int, target string) *http.Response {
	t.Helper()
	return r.answer(t, r.at(fmt.Sprintf("evil-%d.example", i), target))
}

// evils asks all of the hosts for their robots.txt at once, and counts the statuses.
func (r *redirected) evils(t *testing.T) map[int]int {
	t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	statuses := map[int]int{}
	for i := range r.n {
		all.Go(func() {
			resp := r.evil(t, i, "/robots.txt")
			body, _ := io.ReadAll(resp.Body)
			if strings.Contains(string(body), "secret") || strings.Contains(string(body), "hunter2") {
				t.Errorf("evil-%d.example shows what stands on the page: %s", i, body)
			}
			if after := resp.Header.Get("Retry-After"); resp.StatusCode == 503 && after == "" {
				t.Errorf("evil-%d.example: 503 without Retry-After", i)
			}
			mu.Lock()
			defer mu.Unlock()
			statuses[resp.StatusCode]++
		})
	}
	all.Wait()
	return statuses
}

const victimRobots = "User-agent: robotsproxy\nDisallow: /private\nCrawl-delay: 5\n\nUser-agent: *\nDisallow: /star\nCrawl-delay: 0.1\n"

// Twenty hosts redirect their robots.txt to a page that another site disallows: the page is not fetched, the
// robots.txt of the site is fetched once, and the records name the redirecting hosts.
func TestRedirectsToADisallowedPage(t *testing.T) {
	r := redirect(t, 20, "/private/doc?key=hunter2", victimRobots, "")
	if got := r.evils(t); got[503] != 20 {
		t.Errorf("statuses %v, want 503 of all", got)
	}
	if got := r.site.Paths("victim.example"); len(got) != 1 || got[0] != "/robots.txt" || asked(r.site, "victim.example", "/robots.txt") != 1 {
		t.Errorf("the victim was asked for %v, want its robots.txt alone, once", got)
	}
	resp := r.evil(t, 0, "/page")
	body, _ := io.ReadAll(resp.Body)
	for _, want := range []string{r.at("victim.example", "/private/doc"), "line 2", "Disallow: /private", "robots_file", r.at("victim.example", "/robots.txt")} {
		if !strings.Contains(string(body), want) {
			t.Errorf("the refusal lacks %q:\n%s", want, body)
		}
	}
	if h := resp.Header; resp.StatusCode != 503 || h.Get("Robotsproxy-Reason") != "robots-unreachable" || h.Get("Robotsproxy-Decision") != "deny" {
		t.Errorf("a page of such a host: %d %v", resp.StatusCode, h)
	}
	records := r.allRecords(t)
	checkAllRecorded(t, records, r.site)
	refused := 0
	for _, rec := range records {
		switch {
		case rec.Via == audit.Robots && rec.Host == "victim.example" && rec.Path == "/private/doc":
			refused++
			if rec.Decision != policy.Deny || rec.Reason != policy.ReasonRobots || rec.RuleLine != 2 || rec.ProductToken != "robotsproxy" || rec.Client != "local" || !rec.SentAt.IsZero() || strings.Contains(rec.Query, "hunter2") {
				t.Errorf("the record of a refused redirect: %+v", rec)
			}
		case rec.Via != audit.Robots && (rec.Decision != policy.Deny || rec.Reason != policy.ReasonRobotsUnreachable || !strings.Contains(rec.Error, "/private/doc") || strings.Contains(rec.Error, "hunter2")):
			t.Errorf("the record of a request: %+v", rec)
		}
	}
	if refused != 20 {
		t.Errorf("%d records of refused redirects, want 20", refused)
	}
}

// The same with a page that the site allows, with Crawl-delay 5: the pace bounds the number of requests.
func TestRedirectsToAnAllowedPage(t *testing.T) {
	r := redirect(t, 20, "/open/doc", victimRobots, "robots: {timeout: 8s}\n")
	begin := time.Now()
	statuses := r.evils(t)
	took := time.Since(begin)
	hits := asked(r.site, "victim.example", "/open/doc")
	if most := 1 + int(took/(5*time.Second)); hits < 1 || hits > most || statuses[200] != hits || statuses[503] != 20-hits {
		t.Errorf("%d hits in %v and statuses %v, want one in 5 s, and 503 for the others", hits, took, statuses)
	}
	for _, gap := range r.site.Gaps("victim.example") {
		if gap < 5*time.Second-20*time.Millisecond {
			t.Errorf("a gap of %v at the victim, want 5s", gap)
		}
	}
	records := r.allRecords(t)
	checkAllRecorded(t, records, r.site)
	for _, rec := range records {
		if rec.Via == audit.Robots && rec.Path == "/open/doc" && !rec.SentAt.IsZero() &&
			(rec.DelaySource != "crawl-delay" || rec.DelayRequired != audit.Millis(5*time.Second) || rec.PacingMode != "local" || rec.RobotsState != "found" || rec.Status != 200 || rec.Bytes != int64(len(secret))) {
			t.Errorf("the record of a paced redirect: %+v", rec)
		}
	}
}

// A host with such a redirect shows clients only the rules of the page, also after a restart.
func TestRedirectedFileIsServedAsRules(t *testing.T) {
	r := redirect(t, 1, "/open/doc", "", "")
	check := func(when string) {
		t.Helper()
		resp := r.evil(t, 0, "/robots.txt")
		body, _ := io.ReadAll(resp.Body)
		if want := "User-agent: *\nDisallow: /closed\n"; resp.StatusCode != 200 || string(body) != want {
			t.Errorf("%s: %d %q, want the rules alone, %q", when, resp.StatusCode, body, want)
		}
		if h := resp.Header; h.Get("Content-Type") != "text/plain; charset=utf-8" || h.Get("Last-Modified") != "" || h.Get("Robotsproxy-Robots-Sha256") != "" {
			t.Errorf("%s: the fields tell of the page: %v", when, h)
		}
		if got := r.evil(t, 0, "/closed/x").StatusCode; got != 403 {
			t.Errorf("%s: /closed/x is %d, want 403 by the page's rules", when, got)
		}
	}
	check("at first")
	r.restart(t)
	check("after a restart")
	if n := asked(r.site, "victim.example", "/open/doc"); n != 1 {
		t.Errorf("the victim was asked %d times, want once", n)
	}
}

// Such a redirect is decided like any request to its target, in every mode.
func TestRedirectsAreJudged(t *testing.T) {
	const exempt = "exemptions: [{host: victim.example, path: %s, effect: %s, until: 2199-01-01, reason: r, owner: o%s}]\n"
	for _, row := range []struct {
		name, target, victim, config string
		status                       int
		seen                         string // the requests that the victim received, except for its robots.txt
	}{
		{"allowed", "/open", victimRobots, "", 200, "/open"},
		{"no robots.txt", "/open", "404", "", 200, "/open"},
		{"disallowed", "/private", victimRobots, "", 503, ""},
		{"disallowed for others alone", "/star", victimRobots, "", 200, "/star"},
		{"disallowed for all, and we are others", "/star", victimRobots, "identity: {name: TestBot}\n", 503, ""},
		{"the client's token does not count", "/x", "User-agent: NewsBot\nDisallow: /\n", "clients: [{name: news, cidr: [127.0.0.1], product_token: NewsBot}]\n", 200, "/x"},
		{"robots.txt unreachable", "/open", "503", "", 503, ""},
		{"a rule on the query", "/open?a=1", "User-agent: *\nDisallow: /*?a\n", "", 503, ""},
		{"mode report", "/private", victimRobots, "mode: report\n", 503, ""},
		{"mode off for the victim", "/private", victimRobots, "hosts: [{host: victim.example, mode: off}]\n", 503, ""},
		{"mode report for the victim", "/private", victimRobots, "hosts: [{host: victim.example, mode: report}]\n", 503, ""},
		{"denied by the operator", "/open", victimRobots, fmt.Sprintf(exempt, "/open", "deny", ""), 503, "-"},
		{"denied in mode off", "/open", victimRobots, fmt.Sprintf(exempt, "/", "deny", "") + "hosts: [{host: victim.example, mode: off}]\n", 503, "-"},
		{"allowed by the operator", "/private", victimRobots, fmt.Sprintf(exempt, "/private", "allow", ""), 200, "/private"},
		{"allowed for one client", "/private", victimRobots, "clients: [{name: news, cidr: [127.0.0.1]}]\n" + fmt.Sprintf(exempt, "/private", "allow", ", client: news"), 503, ""},
		{"denied for one client", "/open", victimRobots, "clients: [{name: news, cidr: [127.0.0.1]}]\n" + fmt.Sprintf(exempt, "/open", "deny", ", client: news"), 200, "/open"},
		{"the operator's own file for the victim", "/open", victimRobots, "hosts: [{host: victim.example, robots_file: own.txt}]\n", 503, "-"},
		{"the operator's own file for the host itself", "/private", victimRobots, "hosts: [{host: evil-0.example, robots_file: own.txt}]\n", 200, "-"},
		{"Crawl-delay above the maximum", "/open", "User-agent: *\nCrawl-delay: 50\n", "pacing: {max_crawl_delay: 1s}\n", 503, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "own.txt"), []byte("User-agent: *\nDisallow: /open\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			r := redirect(t, 1, row.target, row.victim, strings.ReplaceAll(row.config, "own.txt", filepath.Join(dir, "own.txt")))
			if status, err := strconv.Atoi(row.victim); err == nil {
				r.site.SetRobots("victim.example", robotstest.Robots{Status: status})
			}
			if resp := r.evil(t, 0, "/some/page"); resp.StatusCode != row.status && (row.status == 503 || resp.StatusCode != 200) && !strings.HasPrefix(row.config, "mode: report") {
				t.Errorf("a page of the host: got %d, want %d", resp.StatusCode, row.status)
			}
			var seen []string
			for _, path := range r.site.Paths("victim.example") {
				if path != "/robots.txt" {
					seen = append(seen, path)
				}
			}
			if n := asked(r.site, "victim.example", "/robots.txt"); row.seen == "-" && n != 0 {
				t.Errorf("the victim was asked for its robots.txt %d times, want never", n)
			}
			if got := strings.Join(seen, " "); got != strings.Trim(row.seen, "-") {
				t.Errorf("the victim was asked for %q, want %q", got, row.seen)
			}
			checkAllRecorded(t, r.allRecords(t), r.site)
		})
	}
}

// A host that has pushed back receives no more requests through redirects.
func TestRedirectsToAPausedHost(t *testing.T) {
	r := redirect(t, 3, "/open", victimRobots, "")
	r.site.SetPage("victim.example", "/busy", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(429)
	})
	if got := r.get(t, r.at("victim.example", "/busy")); got != 429 {
		t.Fatalf("GET /busy: got %d, want 429", got)
	}
	if got := r.evils(t); got[503] != 3 {
		t.Errorf("statuses %v, want 503 of all", got)
	}
	resp := r.evil(t, 0, "/page")
	body, _ := io.ReadAll(resp.Body)
	if resp.Header.Get("Robotsproxy-Decision") != "deny" || !strings.Contains(string(body), "pushed back") {
		t.Errorf("a page of such a host: %d %v\n%s", resp.StatusCode, resp.Header, body)
	}
	if got := strings.Join(r.site.Paths("victim.example"), " "); got != "/busy /robots.txt" {
		t.Errorf("the victim was asked for %s, want no more than before", got)
	}
}

// A response with status 429 to a redirect pauses the host for all clients, as for any request.
func TestRedirectsHearTheHost(t *testing.T) {
	r := redirect(t, 1, "/busy", "", "")
	r.site.SetPage("victim.example", "/busy", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(429)
	})
	r.evil(t, 0, "/page")
	if resp := r.answer(t, r.at("victim.example", "/page")); resp.Header.Get("Robotsproxy-Reason") != "backoff" {
		t.Errorf("a page of the host that pushed back: %d %v, want it paused", resp.StatusCode, resp.Header)
	}
}

// Redirects within a host, or to the robots.txt of another host, are followed, with one fetch at a time for a host.
func TestRedirectsThatAreFollowed(t *testing.T) {
	for _, row := range []struct {
		name, to string
		judged   bool // the robots.txt of the target is fetched
	}{
		{"www", "http://www.a.example:HTTP/robots.txt", false},
		{"to https", "https://a.example:HTTPS/robots.txt", false},
		{"a path of its own", "/files/robots.txt", false},
		{"another port of its own", "https://a.example:HTTPS/files/a", false},
		{"exactly robots.txt behind dot segments", "http://www.a.example:HTTP/x/../robots.txt", false},
		{"a fragment is not sent", "http://www.a.example:HTTP/robots.txt#x", false},
		{"userinfo is not sent", "http://u:p@www.a.example:HTTP/robots.txt", false},
		{"an empty query is none", "http://www.a.example:HTTP/robots.txt?", false},
		{"a CDN", "http://cdn.example:HTTP/files/a", true},
		{"a query", "http://www.a.example:HTTP/robots.txt?x", true},
		{"a slash behind", "http://www.a.example:HTTP/robots.txt/", true},
		{"two slashes in front", "http://www.a.example:HTTP//robots.txt", true},
		{"an encoded letter", "http://www.a.example:HTTP/%72obots.txt", true},
		{"another case", "http://www.a.example:HTTP/ROBOTS.TXT", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			site := robotstest.New(t)
			to := strings.NewReplacer("HTTPS", fmt.Sprint(site.TLSPort()), "HTTP", fmt.Sprint(site.Port())).Replace(row.to)
			site.SetPage("", "", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, disallowsPrivate) })
			for _, host := range []string{"www.a.example", fmt.Sprintf("a.example:%d", site.TLSPort())} {
				site.SetRobots(host, robotstest.Robots{Body: disallowsPrivate})
			}
			site.SetRobots("cdn.example", robotstest.Robots{Status: 404})
			site.SetRobots(fmt.Sprintf("a.example:%d", site.Port()), robotstest.Robots{Redirect: to})
			s := serveFor(t, site, []string{"a.example", "www.a.example", "cdn.example"}, "")
			if got := s.get(t, fmt.Sprintf("http://a.example:%d/private", site.Port())); got != 403 {
				t.Errorf("/private: got %d, want 403 by the file that was redirected to", got)
			}
			if got := s.get(t, fmt.Sprintf("http://a.example:%d/open", site.Port())); got != 200 {
				t.Errorf("/open: got %d, want 200", got)
			}
			records := s.allRecords(t)
			checkAllRecorded(t, records, site)
			judged := slices.ContainsFunc(records, func(r audit.Record) bool { return r.Via == audit.Robots && r.RobotsState != "" })
			if judged != row.judged {
				t.Errorf("a redirect was judged: %t, want %t; %v", judged, row.judged, site.Requests())
			}
		})
	}
}

// If twenty hosts redirect to one robots.txt, it is fetched for one after the other.
func TestRedirectsToOneRobotsTxt(t *testing.T) {
	r := redirect(t, 20, "/robots.txt", "", "")
	r.site.SetRobots("victim.example", robotstest.Robots{Body: disallowsPrivate, Delay: 50 * time.Millisecond})
	if got := r.evils(t); got[200] != 20 {
		t.Errorf("statuses %v, want 200 of all", got)
	}
	var last time.Time
	n := 0
	for _, req := range r.site.Requests() {
		if !strings.HasPrefix(req.Host, "victim.") {
			continue
		}
		n++
		if req.Start.Before(last) {
			t.Errorf("request %d to the victim began before the one before had ended", n)
		}
		last = req.End
	}
	if n != 20 {
		t.Errorf("the victim saw %d requests, want 20", n)
	}
}

// The stored result of a refused redirect has the reason, also after a restart.
func TestRefusedRedirectIsKept(t *testing.T) {
	r := redirect(t, 1, "/private/doc", victimRobots, "")
	for _, when := range []string{"at first", "after a restart"} {
		resp := r.evil(t, 0, "/page")
		body, _ := io.ReadAll(resp.Body)
		if resp.Header.Get("Robotsproxy-Decision") != "deny" || !strings.Contains(string(body), "/private/doc") || !strings.Contains(string(body), "Disallow: /private") {
			t.Errorf("%s: %d %v\n%s", when, resp.StatusCode, resp.Header, body)
		}
		if when == "at first" {
			r.restart(t)
		}
	}
	if n := asked(r.site, "evil-0.example", "/robots.txt"); n != 1 {
		t.Errorf("the host was asked %d times, want once", n)
	}
}

// The commands that fetch from sites judge such a redirect as the proxy does.
func TestCommandsJudgeRedirects(t *testing.T) {
	r := redirect(t, 1, "/private/doc", victimRobots, "")
	config := r.cmd.Args[len(r.cmd.Args)-1]
	evil := r.at("evil-0.example", "")
	for _, args := range [][]string{{"check", evil + "/page"}, {"lint", evil}} {
		out, err := exec.Command(binaryPath, append(args, "--config", config)...).CombinedOutput()
		if exit := (*exec.ExitError)(nil); err == nil || !asExit(err, &exit) || exit.ExitCode() != exitUnknown {
			t.Errorf("%s: %v, want the status %d\n%s", args[0], err, exitUnknown, out)
		}
		if !strings.Contains(string(out), "/private/doc") || !strings.Contains(string(out), "Disallow: /private") {
			t.Errorf("%s does not tell which redirect was refused, and why:\n%s", args[0], out)
		}
	}
	if out, err := exec.Command(binaryPath, "cache", "refresh", "--data-dir", r.dir, "--admin-listen", r.admin, evil).CombinedOutput(); err != nil || !strings.Contains(string(out), "/private/doc") || !strings.Contains(string(out), "redirect-refused") {
		t.Errorf("cache refresh: %v\n%s", err, out)
	}
	if n := asked(r.site, "victim.example", "/private/doc"); n != 0 {
		t.Errorf("the page was asked for %d times, want never", n)
	}
}

func asExit(err error, exit **exec.ExitError) bool {
	e, ok := err.(*exec.ExitError)
	*exit = e
	return ok
}

// An older copy remains in use while the redirect to a new one is refused.
func TestOlderCopyOutlivesARefusedRedirect(t *testing.T) {
	r := redirect(t, 1, "/private/doc", victimRobots, "robots: {ttl: 1s, min_ttl: 0s, error_ttl: 1s}\n")
	r.site.SetRobots("evil-0.example", robotstest.Robots{Body: "User-agent: *\nDisallow: /closed\n"})
	if got := r.evil(t, 0, "/closed").StatusCode; got != 403 {
		t.Fatalf("/closed: got %d, want 403", got)
	}
	r.site.SetRobots("evil-0.example", robotstest.Robots{Status: 302, Redirect: r.at("victim.example", "/private/doc")})
	time.Sleep(1500 * time.Millisecond)
	if got := r.evil(t, 0, "/closed").StatusCode; got != 403 {
		t.Errorf("/closed after it expired: got %d, want 403 by the older copy", got)
	}
	if got := r.evil(t, 0, "/open").StatusCode; got != 200 {
		t.Errorf("/open after it expired: got %d, want 200 by the older copy", got)
	}
	if n := asked(r.site, "evil-0.example", "/robots.txt"); n < 2 {
		t.Errorf("the host was asked %d times, want again", n)
	}
	var shown []struct{ State, Error string }
	out, err := exec.Command(binaryPath, "cache", "show", "--format", "json", "--data-dir", r.dir, "--admin-listen", r.admin, r.at("evil-0.example", "")).Output()
	if err != nil || json.Unmarshal(out, &shown) != nil || len(shown) != 1 || shown[0].State != "stale" || !strings.Contains(shown[0].Error, "/private/doc") {
		t.Errorf("cache show: %v\n%s", err, out)
	}
}

// Two hosts that redirect to a page of each other do not wait for each other: both redirects are refused.
func TestRedirectsCrosswise(t *testing.T) {
	site := robotstest.New(t)
	at := func(host, target string) string { return fmt.Sprintf("http://%s:%d%s", host, site.Port(), target) }
	site.SetRobots("a.example", robotstest.Robots{Redirect: at("b.example", "/x"), Delay: 50 * time.Millisecond})
	site.SetRobots("b.example", robotstest.Robots{Redirect: at("a.example", "/x"), Delay: 50 * time.Millisecond})
	s := serveFor(t, site, []string{"a.example", "b.example"}, "")
	begin := time.Now()
	var all sync.WaitGroup
	for _, host := range []string{"a.example", "b.example"} {
		all.Go(func() {
			if got := s.get(t, at(host, "/page")); got != 503 {
				t.Errorf("%s: got %d, want 503", host, got)
			}
		})
	}
	all.Wait()
	if took := time.Since(begin); took > 9*time.Second {
		t.Errorf("it took %v, which is as long as robots.timeout", took)
	}
	for _, host := range []string{"a.example", "b.example"} {
		if n := asked(site, host, "/x"); n != 0 {
			t.Errorf("%s was asked for /x %d times, want never", host, n)
		}
	}
}

// A redirect to the proxy, to its admin listener or to its pages is refused.
func TestRedirectsToOurselves(t *testing.T) {
	r := redirect(t, 1, "/x", "", "")
	for _, to := range []string{"http://" + r.proxy + "/proxy.pac", "http://" + r.admin + "/metrics", "http://" + r.admin + "/robots.txt", "http://robots.proxy/ca.pem"} {
		r.site.SetRobots("other.example", robotstest.Robots{Redirect: to})
		resp := r.answer(t, r.at("other.example", "/robots.txt"))
		if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 503 || resp.Header.Get("Robotsproxy-Reason") != "robots-unreachable" {
			t.Errorf("a redirect to %s: %d %v\n%s", to, resp.StatusCode, resp.Header, body)
		}
		if out, err := exec.Command(binaryPath, "cache", "purge", "--data-dir", r.dir, "--admin-listen", r.admin, r.at("other.example", "")).CombinedOutput(); err != nil {
			t.Fatalf("cache purge: %v\n%s", err, out)
		}
	}
}

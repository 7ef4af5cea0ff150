package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// needChromium requires the browser, and the program that makes it trust the CA.
func needChromium(t *testing.T) {
	program("chromium")(t)
	program("certutil")(t)
}

// browser is one tab of a headless Chromium with a separate home, which trusts the CA after "robotsproxy ca install".
type browser struct {
	t   *testing.T
	ctx context.Context
}

// quiet are flags that keep Chromium from contacting its vendor for the time, updates and accounts.
var quiet = map[string]any{
	"disable-features": "Translate,NetworkTimeServiceQuerying,OptimizationHints",
	"gaia-url":         "http://127.0.0.1:1", "component-updater": "disable-background-downloads,url-source=http://127.0.0.1:1",
	"disable-component-update": true,
}

// browserTime is the maximum time for a browser to start and to run a test, on a busy machine.
const browserTime = 2 * time.Minute

// newBrowser starts a browser with a flag that sets its proxy, such as "proxy-server".
func newBrowser(t *testing.T, c crawl, flag, value string) *browser {
	t.Helper()
	home := filepath.Join(c.dir, "home")
	trustInNSS(t, home, filepath.Dir(c.ca))
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath("chromium"), chromedp.Env("HOME="+home), chromedp.UserDataDir(filepath.Join(home, "chromium")),
		chromedp.Flag("proxy-bypass-list", "<-loopback>"), chromedp.Flag(flag, value), chromedp.DisableGPU,
		chromedp.WSURLReadTimeout(browserTime),
	)
	for flag, value := range quiet {
		options = append(options, chromedp.Flag(flag, value))
	}
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium has no sandbox for root
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	tab, closeTab := chromedp.NewContext(allocator)
	t.Cleanup(closeTab)
	ctx, cancel := context.WithTimeout(tab, browserTime)
	t.Cleanup(cancel)
	return &browser{t, ctx}
}

// trustInNSS creates a database in home and adds the CA to it.
func trustInNSS(t *testing.T, home, dataDir string) {
	t.Helper()
	db := filepath.Join(home, ".pki", "nssdb")
	if err := os.MkdirAll(db, 0o700); err != nil {
		t.Fatal(err)
	}
	install := exec.Command(binaryPath, "ca", "install", "--nss", "--data-dir", dataDir)
	install.Env = append(os.Environ(), "HOME="+home)
	for _, cmd := range []*exec.Cmd{exec.Command("certutil", "-d", "sql:"+db, "-N", "--empty-password"), install} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
}

// open loads url and returns the response and its body.
func (b *browser) open(url string) (*network.Response, []byte) {
	b.t.Helper()
	isPage := func(e network.EventResponseReceived) bool {
		return e.Type == network.ResourceTypeDocument && e.Response.URL == url // frames are documents too
	}
	got, err := chromedp.Run(b.ctx, chromedp.WaitEvent(network.ResponseReceived, isPage, chromedp.Navigate(url)))
	if err != nil {
		b.t.Fatalf("opening %s: %v", url, err)
	}
	body, err := chromedp.Call(b.ctx, network.GetResponseBody, network.GetResponseBodyParams{RequestID: got.RequestID})
	if err != nil {
		b.t.Fatalf("reading what came from %s: %v", url, err)
	}
	return got.Response, body.Body
}

// evaluate runs a script on b's page and returns the value of its promise.
func evaluate[T any](b *browser, script string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("evaluating %s: %v", script, err)
	}
	return value
}

func field(resp *network.Response, name string) string {
	for key, value := range resp.Headers {
		if strings.EqualFold(key, name) {
			return fmt.Sprint(value)
		}
	}
	return ""
}

func crawlWithChromium(t *testing.T, c crawl) []fetched {
	b := newBrowser(t, c, "proxy-server", c.proxy)
	want := "http/1.1"
	if strings.HasPrefix(c.start, "https:") {
		want = "h2"
	}
	return c.follow(func(url string) (fetched, []byte) {
		resp, body := b.open(url)
		if resp.Protocol != want {
			t.Errorf("%s came over %s, want %s", url, resp.Protocol, want)
		}
		return fetched{URL: url, Status: int(resp.Status), Reason: field(resp, "Robotsproxy-Reason")}, body
	})
}

// The parts of a page are judged like the page: pictures, styles, scripts, frames and requests of scripts. The browser
// finds the proxy through its PAC file, and shows the reason of a refusal.
func TestChromium(t *testing.T) {
	needChromium(t)
	site := robotstest.New(t)
	site.SetRobots("a.example", robotstest.Robots{Body: "User-agent: *\nDisallow: /private/\n"})
	for path, page := range map[string][2]string{
		"/mixed": {"text/html", `<title>mixed</title><link rel="icon" href="data:,"><link rel="stylesheet" href="/style.css">
			<img src="/private/picture.png"><iframe src="/private/frame"></iframe><script src="/private/script.js"></script><script src="/script.js"></script>`},
		"/style.css": {"text/css", `body { background: url("/private/background.png") }`},
		"/script.js": {"text/javascript", `
			async function ask(path) { const r = await fetch(path); return r.status + " " + r.headers.get("Robotsproxy-Reason") }
			window.asked = Promise.all([ask("/private/data"), ask("/data")])`},
		"/data": {"text/plain", "data"},
	} {
		site.SetPage("a.example", path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", page[0])
			_, _ = io.WriteString(w, page[1])
		})
	}
	s, c := startCrawl(t, site, "https", "")
	b := newBrowser(t, c, "proxy-pac-url", "http://"+s.admin+"/proxy.pac")
	base := strings.TrimSuffix(c.start, "/")

	if resp, _ := b.open(base + "/mixed"); resp.Status != 200 || resp.Protocol != "h2" {
		t.Errorf("/mixed: %d over %s, want 200 over h2", resp.Status, resp.Protocol)
	}
	if asked, want := evaluate[[]string](b, "window.asked"), []string{"403 robots", "200 null"}; !slices.Equal(asked, want) {
		t.Errorf("the page's script was answered %q, want %q", asked, want)
	}
	if resp, _ := b.open(base + "/private/page"); resp.Status != 403 {
		t.Errorf("/private/page: %d, want 403", resp.Status)
	}
	if text := evaluate[string](b, "document.body.innerText"); !strings.Contains(text, "403 Disallowed by robots.txt") || !strings.Contains(text, "line 2: Disallow: /private/") {
		t.Errorf("the refusal reads %q, want the rule in it", text)
	}
	got := slices.DeleteFunc(site.Paths("a.example"), func(target string) bool { return target == "/favicon.ico" }) // a request of the browser
	slices.Sort(got)
	if want := []string{"/data", "/mixed", "/robots.txt", "/script.js", "/style.css"}; !slices.Equal(got, want) {
		t.Errorf("the origin was asked for %q, want %q", got, want)
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	checkJudged(t, filepath.Join(s.dir, "audit.jsonl"), "picture.png", "frame", "script.js", "background.png", "data", "page")
}

// checkJudged fails unless each name below /private/ was refused.
func checkJudged(t *testing.T, audit string, names ...string) {
	t.Helper()
	records, err := os.ReadFile(audit)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.Contains(string(records), `"path":"/private/`+name+`"`) {
			t.Errorf("no record says that /private/%s was judged", name)
		}
	}
	for line := range strings.Lines(string(records)) {
		if !strings.Contains(line, `"host":"a.example"`) {
			t.Errorf("the browser asked for something else: %s", line)
		}
	}
}

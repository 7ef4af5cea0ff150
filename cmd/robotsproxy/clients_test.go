package main

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// crawlDelay is the Crawl-delay of the fake site in the tests of real crawlers, "0.1" in its robots.txt.
const crawlDelay = 100 * time.Millisecond

const clientRobots = "User-agent: *\nDisallow: /private/\nCrawl-delay: 0.1\n"

// fetched is the response that a crawler received for one URL.
type fetched struct {
	URL    string `json:"url"`
	Status int    `json:"status"`
	SHA256 string `json:"sha256"` // of the body
	Reason string `json:"reason"` // the field Robotsproxy-Reason
}

// crawl is the crawl of one client: all pages that can be reached from start, on its host.
type crawl struct {
	start string
	env   []string // the output of "robotsproxy env", and variables of the test
	dir   string   // to work in
	proxy string   // URL of the proxy
	ca    string   // path of its CA
}

// crawlers are real clients. They do not read robots.txt here, so that only the proxy enforces it.
var crawlers = []struct {
	name  string
	needs func(t *testing.T)
	run   func(t *testing.T, c crawl) []fetched
}{
	{"curl", program("curl"), crawlWithCurl},
	{"wget", program("wget"), crawlWithWget},
	{"urllib", python("urllib.request"), script("urllib_crawl.py")},
	{"requests", python("requests"), script("requests_crawl.py")},
	{"scrapy", python("scrapy"), script("scrapy_crawl.py")},
	{"go", func(*testing.T) {}, crawlWithGo},
	{"chromium", needChromium, crawlWithChromium},
}

// Every real crawler receives each allowed page complete, and a refusal for each disallowed one, which the origin never
// receives. The spacing is kept, over HTTP and HTTPS.
func TestCrawlers(t *testing.T) {
	long(t)
	for _, c := range crawlers {
		for _, scheme := range []string{"http", "https"} {
			t.Run(c.name+"/"+scheme, func(t *testing.T) {
				t.Parallel()
				c.needs(t)
				testCrawler(t, scheme, "", c.run)
			})
		}
	}
}

// The same with a proxy that requires a password, which a crawler reads from the variables. Only wget needs more.
// Chromium is not tested: it does not read a password from variables.
func TestCrawlersWithPassword(t *testing.T) {
	long(t)
	for _, c := range crawlers {
		if c.name == "chromium" {
			continue
		}
		for _, scheme := range []string{"http", "https"} {
			t.Run(c.name+"/"+scheme, func(t *testing.T) {
				t.Parallel()
				c.needs(t)
				testCrawler(t, scheme, "news:s3cr3t@", c.run)
			})
		}
	}
}

// testCrawler crawls with userinfo: see startCrawl.
func testCrawler(t *testing.T, scheme, userinfo string, run func(*testing.T, crawl) []fetched) {
	site := robotstest.New(t)
	site.SetRobots("a.example", robotstest.Robots{Body: clientRobots})
	_, c := startCrawl(t, site, scheme, userinfo)
	got := run(t, c)
	checkCrawl(t, site, strings.TrimSuffix(c.start, "/"), got)
}

// startCrawl starts a proxy in front of site, and returns the crawl of a.example through it. userinfo is in the URL of
// the proxy. If it is empty, the proxy requires no password.
func startCrawl(t *testing.T, site *robotstest.Site, scheme, userinfo string) (*server, crawl) {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	text := siteConfig(site)
	if userinfo != "" {
		text += "auth: {htpasswd_file: " + writeHtpasswd(t, dir, "news", "s3cr3t") + ", required: true}\n"
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := startServer(filepath.Join(dir, "data"), os.Environ(), "--config", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("the proxy ended with %v:\n%s", err, s.log)
		}
	})
	port := site.Port()
	if scheme == "https" {
		port = site.TLSPort()
	}
	env := pastedEnvironment(t, s, config)
	for i := range env {
		env[i] = strings.Replace(env[i], "http://"+s.proxy, "http://"+userinfo+s.proxy, 1)
	}
	start := fmt.Sprintf("%s://a.example:%d/", scheme, port)
	return s, crawl{start: start, env: env, dir: dir, proxy: "http://" + userinfo + s.proxy, ca: s.ca}
}

// pastedEnvironment returns the environment of a shell after eval "$(robotsproxy env)".
func pastedEnvironment(t *testing.T, s *server, config string) []string {
	t.Helper()
	out, err := exec.Command(binaryPath, "env", "--config", config, "--data-dir", s.dir, "--listen", s.proxy).Output()
	if err != nil {
		t.Fatal(err)
	}
	env := os.Environ()
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		env = append(env, name+"="+strings.Trim(value, "'"))
	}
	return env
}

func checkCrawl(t *testing.T, site *robotstest.Site, base string, got []fetched) {
	byPath := make(map[string]fetched)
	for _, f := range got {
		byPath[strings.TrimPrefix(f.URL, base)] = f
	}
	for _, path := range site.Pages() {
		want := sum(directly(t, site, path))
		if f := byPath[path]; f.Status != 200 || f.SHA256 != want {
			t.Errorf("allowed page %s: got %+v, want status 200 and SHA-256 %s", path, f, want)
		}
	}
	refused := 0
	for path, f := range byPath {
		if !strings.HasPrefix(path, "/private/") {
			continue
		}
		refused++
		if f.Status != 403 || f.Reason != "robots" {
			t.Errorf("disallowed page %s: got %+v, want status 403 and the reason robots", path, f)
		}
	}
	if refused == 0 {
		t.Errorf("the crawler tried no disallowed page: %v", slices.Sorted(mapKeys(byPath)))
	}
	checkOrigin(t, site)
}

// checkOrigin checks the requests that reached the site: no disallowed one, none too early, none concurrent.
func checkOrigin(t *testing.T, site *robotstest.Site) {
	t.Helper()
	for _, target := range site.Paths("a.example") {
		if strings.HasPrefix(target, "/private/") {
			t.Errorf("the origin was asked for %s", target)
		}
	}
	if first, second, found := site.Overlap("a.example"); found {
		t.Errorf("two requests at once: %v and %v", first, second)
	}
	gaps := site.Gaps("a.example")
	if len(gaps) == 0 {
		t.Error("the origin saw no two requests")
		return
	}
	if least := slices.Min(gaps); least < crawlDelay {
		t.Errorf("least gap at the origin is %v of %d, want %v", least, len(gaps), crawlDelay)
	}
}

// directly fetches a page from the site without the proxy. The site does not record it as a request of the crawler.
func directly(t *testing.T, site *robotstest.Site, path string) []byte {
	t.Helper()
	req, err := http.NewRequest("GET", fmt.Sprintf("http://127.0.0.1:%d%s", site.Port(), path), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func mapKeys(m map[string]fetched) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// missing skips the test, or fails it if all programs must be installed.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is not here, and CI needs it", what)
	}
	t.Skipf("%s is not here", what)
}

func program(name string) func(*testing.T) {
	return func(t *testing.T) {
		if _, err := exec.LookPath(name); err != nil {
			missing(t, name)
		}
	}
}

// systemPython has Debian's packages; another python3 that is first in PATH may not.
const systemPython = "/usr/bin/python3"

func python(module string) func(*testing.T) {
	return func(t *testing.T) {
		if err := exec.Command(systemPython, "-c", "import "+module).Run(); err != nil {
			missing(t, systemPython+" with "+module)
		}
	}
}

// script runs one of testdata/clients, which print the responses, one JSON object per line.
func script(name string) func(*testing.T, crawl) []fetched {
	return func(t *testing.T, c crawl) []fetched {
		path, err := filepath.Abs(filepath.Join("testdata", "clients", name))
		if err != nil {
			t.Fatal(err)
		}
		return c.records(t, exec.Command(systemPython, path, c.start))
	}
}

// records runs cmd, which prints a line of JSON for each URL, in the environment of the crawl.
func (c crawl) records(t *testing.T, cmd *exec.Cmd) (all []fetched) {
	t.Helper()
	for line := range strings.Lines(c.output(t, cmd)) {
		var f fetched
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%v printed %q: %v", cmd.Args, line, err)
		}
		all = append(all, f)
	}
	return all
}

// output runs cmd in the environment of the crawl.
func (c crawl) output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Env, cmd.Dir, cmd.Stderr = c.env, c.dir, &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", cmd.Args, err, out, &stderr)
	}
	return string(out)
}

var href = regexp.MustCompile(`href="(/[^"]*)"`)

// follow crawls breadth first with fetch, which gets one URL.
func (c crawl) follow(fetch func(url string) (fetched, []byte)) []fetched {
	base := strings.TrimSuffix(c.start, "/")
	queue, seen := []string{c.start}, map[string]bool{c.start: true}
	var all []fetched
	for len(queue) > 0 {
		f, body := fetch(queue[0])
		queue = queue[1:]
		f.SHA256 = sum(body)
		all = append(all, f)
		if f.Status != 200 {
			continue
		}
		for _, m := range href.FindAllStringSubmatch(string(body), -1) {
			if next := base + m[1]; !seen[next] {
				seen[next] = true
				queue = append(queue, next)
			}
		}
	}
	return all
}

func crawlWithCurl(t *testing.T, c crawl) []fetched {
	page := filepath.Join(c.dir, "page")
	return c.follow(func(url string) (fetched, []byte) {
		out := c.output(t, exec.Command("curl", "-sS", "-o", page, "-w", "%{http_code} %header{robotsproxy-reason}", url))
		f := fetched{URL: url}
		fmt.Sscan(out, &f.Status, &f.Reason)
		body, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		return f, body
	})
}

func crawlWithGo(t *testing.T, c crawl) []fetched {
	pem, err := os.ReadFile(c.ca)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	proxyURL, err := url.Parse(c.proxy)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyURL(proxyURL), TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true,
	}}
	defer client.CloseIdleConnections()
	return c.follow(func(url string) (fetched, []byte) {
		resp, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return fetched{URL: url, Status: resp.StatusCode, Reason: resp.Header.Get("Robotsproxy-Reason")}, body
	})
}

// wgetRefused matches a refusal in the output of wget -nv -S: the URL, then the status.
var wgetRefused = regexp.MustCompile(`(?m)^(https?://\S+):\n.* ERROR (\d+): `)

// crawlWithWget mirrors the site. wget exits with 8 if a server refused a request, as it must here.
func crawlWithWget(t *testing.T, c crawl) []fetched {
	dir := filepath.Join(c.dir, "mirror")
	cmd := exec.Command("wget", "-nv", "-r", "-l", "10", "-e", "robots=off", "-P", dir, c.start)
	if u, err := url.Parse(c.proxy); err == nil && u.User != nil { // the file in WGETRC takes precedence over the variables
		password, _ := u.User.Password()
		cmd.Args = append(cmd.Args, "--proxy-user="+u.User.Username(), "--proxy-password="+password)
	}
	var log bytes.Buffer
	cmd.Env, cmd.Dir, cmd.Stderr = c.env, c.dir, &log
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 8 {
		t.Fatalf("wget: %v\n%s", err, &log)
	}
	var all []fetched
	for _, m := range wgetRefused.FindAllStringSubmatch(log.String(), -1) {
		f := fetched{URL: m[1], Reason: "robots"} // wget shows the status only
		fmt.Sscan(m[2], &f.Status)
		all = append(all, f)
	}
	return append(all, mirrored(t, dir, c.start)...)
}

// mirrored reads the files of wget: a folder for the host, and a file for each page.
func mirrored(t *testing.T, dir, start string) (all []fetched) {
	u, err := url.Parse(start)
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(dir, u.Host)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := os.ReadFile(path)
		target := strings.TrimSuffix(strings.TrimPrefix(path, root+"/"), "index.html")
		all = append(all, fetched{URL: start + target, Status: 200, SHA256: sum(body)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

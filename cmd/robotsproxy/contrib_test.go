package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// The examples in contrib crawl a host with the real libraries. Each page arrives, although most requests are answered
// 429 first and no library may repeat a request, and each refusal has its reason.
func TestContrib(t *testing.T) {
	long(t)
	for _, c := range []struct {
		name    string
		prepare func(t *testing.T, dir string) *exec.Cmd
	}{
		{"scrapy", scrapyExample},
		{"colly", collyExample},
		{"crawlee", crawleeExample},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(filepath.Join("..", "..", "contrib", c.name))); err != nil {
				t.Fatal(err)
			}
			testExample(t, c.prepare(t, dir))
		})
	}
}

func scrapyExample(t *testing.T, dir string) *exec.Cmd {
	python("scrapy")(t)
	return exec.Command(systemPython, filepath.Join(dir, "crawl.py"))
}

func collyExample(t *testing.T, dir string) *exec.Cmd {
	build := exec.Command("go", "build", "-o", "example", "./crawl")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		missing(t, "colly ("+string(out)+")")
	}
	return exec.Command(filepath.Join(dir, "example"))
}

func crawleeExample(t *testing.T, dir string) *exec.Cmd {
	program("npm")(t)
	install := exec.Command("npm", "install", "--no-audit", "--no-fund", "--no-save", "@crawlee/cheerio@3.18.1")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		missing(t, "crawlee ("+string(out)+")")
	}
	return exec.Command("node", filepath.Join(dir, "crawl.mjs"))
}

// testExample runs an example, which gets the URL and prints "page URL" or "refused URL REASON".
func testExample(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	t.Setenv("ROBOTSPROXY_PACING_MAX_WAIT", "10ms")
	site := robotstest.New(t)
	site.SetRobots("a.example", robotstest.Robots{Body: clientRobots})
	s, c := startCrawl(t, site, "https", "")
	cmd.Args = append(cmd.Args, c.start)
	var pages []string
	refused := make(map[string]string)
	for line := range strings.Lines(c.output(t, cmd)) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		url, reason, _ := strings.Cut(rest, " ")
		if path := "/" + strings.TrimPrefix(url, c.start); kind == "page" {
			pages = append(pages, path)
		} else {
			refused[path] = reason
		}
	}
	slices.Sort(pages)
	want := site.Pages()
	slices.Sort(want)
	if !slices.Equal(pages, want) {
		t.Errorf("pages %q, want %q", pages, want)
	}
	for _, path := range site.Private() {
		if refused[path] != "robots.txt line 2: Disallow: /private/" {
			t.Errorf("%s was refused because of %q", path, refused[path])
		}
	}
	if len(refused) != len(site.Private()) {
		t.Errorf("refused: %q", refused)
	}
	checkOrigin(t, site)
	records, err := fs.ReadFile(os.DirFS(s.dir), "audit.jsonl")
	if err != nil || !strings.Contains(string(records), `"decision":"throttle"`) {
		t.Errorf("no request was answered 429 (%v)", err)
	}
}

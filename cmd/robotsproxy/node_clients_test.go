package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// nodeLibraries are the packages of npm that docs/crawlers.md sets up. All run with Node 20.
var nodeLibraries = []struct{ name, version string }{
	{"undici", "7.30.2"},
	{"puppeteer-core", "24.43.0"},
	{"playwright-core", "1.65.1"},
}

// The libraries of Node receive each allowed page over HTTPS, and a refusal for each disallowed one.
func TestNodeClients(t *testing.T) {
	long(t)
	for _, library := range nodeLibraries {
		t.Run(library.name, func(t *testing.T) {
			t.Parallel()
			program("npm")(t)
			needChromium(t)
			dir := t.TempDir()
			script := filepath.Join(dir, "node_crawl.mjs") // beside node_modules, where Node looks for packages
			text, err := os.ReadFile(filepath.Join("testdata", "clients", "node_crawl.mjs"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(script, text, 0o600); err != nil {
				t.Fatal(err)
			}
			install := exec.Command("npm", "install", "--no-audit", "--no-fund", "--no-save", library.name+"@"+library.version)
			install.Dir = dir
			if out, err := install.CombinedOutput(); err != nil {
				missing(t, library.name+" ("+string(out)+")")
			}
			testCrawler(t, "https", "", func(t *testing.T, c crawl) []fetched {
				home := filepath.Join(c.dir, "home")
				trustInNSS(t, home, filepath.Dir(c.ca))
				c.env = append(c.env, "HOME="+home)
				return c.records(t, exec.Command("node", script, library.name, c.start, c.proxy))
			})
		})
	}
}

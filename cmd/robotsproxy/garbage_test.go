package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// TestGarbageInFront checks that a robots.txt that begins with bytes that are neither UTF-8 nor a byte order mark is
// read line by line: by the proxy, by check of an origin and by check of a file.
func TestGarbageInFront(t *testing.T) {
	site := robotstest.New(t)
	garbage := []string{"\xFF\xFE\xFD\n", "\xFE\xFF\n", "\xFF\xFE", "\x80\x81\n", "\xEF\xBB\n", "\xC3(\r\n", "\xFF\xFE\x00\x00\r", "\x00\xFF\n"}
	var hosts []string
	for i, g := range garbage {
		host := fmt.Sprintf("g%d.example", i)
		hosts = append(hosts, host+": 127.0.0.1")
		site.SetRobots(host, robotstest.Robots{Body: g + "User-agent: *\nDisallow: /private\n"})
	}
	s := startSite(t, site, "\n  resolve: {"+strings.Join(hosts, ", ")+"}\n")
	config := filepath.Join(filepath.Dir(s.dir), "config.yaml")
	for i, g := range garbage {
		page := fmt.Sprintf("http://g%d.example:%d/private/x", i, site.Port())
		if resp, body := s.fetch(t, page, "*/*"); resp.StatusCode != 403 {
			t.Errorf("%q in front: %s: %s", g, resp.Status, body)
		}
		file := filepath.Join(t.TempDir(), "robots.txt")
		if err := os.WriteFile(file, []byte(g+"User-agent: *\nDisallow: /private\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{page, "--config", config}, {"/private/x", "--robots", file}} {
			out, _ := exec.Command(binaryPath, append([]string{"check"}, args...)...).CombinedOutput()
			if !strings.HasPrefix(string(out), "refused") {
				t.Errorf("%q in front: check %v: %s", g, args, out)
			}
		}
	}
}

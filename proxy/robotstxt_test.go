package proxy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// A crawler that reads the served file itself reads what is enforced: half a line at the cut is in neither.
func TestServedFileIsTheOneThatIsEnforced(t *testing.T) {
	const limit = 500 << 10
	const head, rule = "User-agent: *\nDisallow: /\n#", "Allow: /"
	for _, end := range []string{"\n", "\r", "\r\n"} {
		t.Run(fmt.Sprintf("%q", end), func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.ServeRobots = true })
			lines := head + strings.Repeat("x", limit-len(head+end+rule)) + end
			r.site.SetRobots("a.example", robotstest.Robots{Body: lines + rule + "images/\n"})
			resp, body := r.get(r.client(true), r.url("http", "/robots.txt"))
			if resp.StatusCode != 200 || string(body) != lines {
				t.Errorf("%s with %d octets that end in %q, want the %d of all whole lines", resp.Status, len(body), body[max(0, len(body)-20):], len(lines))
			}
			if got, want := resp.ContentLength, int64(len(lines)); got != want {
				t.Errorf("Content-Length: %d, want %d", got, want)
			}
			if got := resp.Header.Get("Robotsproxy-Robots-State"); got != "oversize" {
				t.Errorf("Robotsproxy-Robots-State: %s, want oversize", got)
			}
			if resp, _ := r.get(r.client(true), r.url("http", "/page/1")); resp.StatusCode != 403 {
				t.Errorf("GET /page/1: %s, want 403", resp.Status)
			}
		})
	}
}

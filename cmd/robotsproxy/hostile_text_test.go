package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// hostileTexts are rules with terminal escapes. The second is not UTF-8.
var hostileTexts = []string{
	"\x01\x07\x08\x0b\x0c\x1b[31m\x1b]0;title\x07\x7f\u0080\u0085\u009b31m\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069",
	"\x1b[2J\x80\x9b31m\xff",
}

// hostileRobots disallows /private/ and text, in a group with text among its agents.
func hostileRobots(text string) string {
	return "User-agent: NewsBot " + text + "\nUser-agent: *\nDisallow: /private/" + text + "\nAllow: /private/" + text + "$x\nSitemap: http://" + text + "/\n" + text + ": x\n\nUser-agent: OtherBot " + text + "\nDisallow: /private/" + text + "\n"
}

// encoded percent-encodes the bytes that are invalid in a path.
func encoded(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		if c <= ' ' || c >= 0x7f {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// unsafe returns the part of shown that a terminal could interpret, or "". Line feeds and tabs are safe.
func unsafe(shown string) string {
	if !utf8.ValidString(shown) {
		return "bytes that are not UTF-8"
	}
	for _, r := range shown {
		if r < 0x20 && r != '\n' && r != '\t' && r != '\r' || r >= 0x7f && r < 0xa0 || strings.ContainsRune("\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069", r) {
			return fmt.Sprintf("%U", r)
		}
	}
	return ""
}

// TestHostileRobots checks that no output contains terminal escapes, and that JSON represents them.
func TestHostileRobots(t *testing.T) {
	for i, text := range hostileTexts {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			site := robotstest.New(t)
			robots := hostileRobots(text)
			site.SetRobots("a.example", robotstest.Robots{Body: robots})
			s := startSite(t, site, "\n  resolve: {a.example: 127.0.0.1}\naudit: {query: keep}\nlog: {level: debug}\n")
			config := filepath.Join(filepath.Dir(s.dir), "config.yaml")
			file := filepath.Join(filepath.Dir(s.dir), "robots.txt")
			if err := os.WriteFile(file, []byte(robots), 0o600); err != nil {
				t.Fatal(err)
			}
			page := fmt.Sprintf("http://a.example:%d/private/%s", site.Port(), encoded(text))
			shows := func(what, shown, want string) {
				t.Helper()
				if bad := unsafe(shown); bad != "" || !strings.Contains(shown, want) {
					t.Errorf("%s shows %s, or lacks %q:\n%q", what, bad, want, shown)
				}
			}
			command := func(want string, args ...string) string {
				t.Helper()
				cmd := exec.Command(binaryPath, args...)
				cmd.Env = append(os.Environ(), "ROBOTSPROXY_DATA_DIR="+filepath.Join(filepath.Dir(s.dir), "other"))
				out, _ := cmd.CombinedOutput()
				shows(strings.Join(args, " "), string(out), want)
				return string(out)
			}

			for _, accept := range []string{"*/*", "text/html", "application/json"} {
				resp, body := s.fetch(t, page, accept)
				if resp.StatusCode != http.StatusForbidden {
					t.Fatalf("%s, want 403: %q", resp.Status, body)
				}
				shows("the body for "+accept, body, "Disallow: /private/")
				shows("the header", fmt.Sprint(resp.Header, resp.Status), "Disallow: /private/")
				if rule := resp.Header.Get("Robotsproxy-Rule"); strings.ContainsFunc(rule, func(r rune) bool { return r < ' ' || r > '~' }) {
					t.Errorf("Robotsproxy-Rule: %q", rule)
				}
				if accept == "application/json" && utf8.ValidString(text) {
					var problem struct{ Rule string }
					if err := json.Unmarshal([]byte(body), &problem); err != nil || problem.Rule != "line 3: Disallow: /private/"+text {
						t.Errorf("the problem's rule is %q, %v", problem.Rule, err)
					}
				}
			}

			command("line 3: Disallow: /private/", "check", "--config", config, page)
			command("matches: line 3", "check", "--config", config, "--explain", page)
			command("for others:", "check", "--config", config, "--explain", page, "--robots", file)
			command("line 3", "check", page, "--robots", file, "--explain", "-A", "NewsBot")
			inJSON := command(`"rule":"Disallow: /private/`, "check", "--config", config, "--format", "json", "--explain", page)
			var a answer
			if err := json.Unmarshal([]byte(inJSON), &a); err != nil || utf8.ValidString(text) && a.Rule != "Disallow: /private/"+text {
				t.Errorf("check --format json tells %q, %v", a.Rule, err)
			}
			for _, format := range []string{"text", "json", "sarif"} {
				command("robots.txt", "lint", "--config", config, "--format", format, file, fmt.Sprintf("http://a.example:%d", site.Port()))
			}
			command("a.example", "cache", "ls", "--config", config, "--data-dir", s.dir, "--admin-listen", s.admin)
			command("     3  Disallow: /private/", "cache", "show", "--config", config, "--data-dir", s.dir, "--admin-listen", s.admin, "a.example")
			command(`"body": "`, "cache", "show", "--config", config, "--data-dir", s.dir, "--admin-listen", s.admin, "--format", "json", "a.example")
			if curl, err := exec.LookPath("curl"); err == nil {
				command("robots.txt line 3: Disallow: /private/", "run", "--config", config, "--", curl, "-g", "-sS", "-o", "/dev/null", page)
			}

			batch := exec.Command(binaryPath, "check", "--batch")
			line, err := json.Marshal(map[string]any{"robots_b64": []byte(robots), "ua": "x", "url_b64": []byte("/private/" + encoded(text))})
			if err != nil {
				t.Fatal(err)
			}
			batch.Stdin = bytes.NewReader(line)
			out, err := batch.CombinedOutput()
			if err != nil {
				t.Errorf("check --batch: %v", err)
			}
			shows("check --batch", string(out), `{"allowed":false,"line":3,"rule":"Disallow: /private/`)

			records := ofClients(s.records(t))
			if rec := records[0]; utf8.ValidString(text) && (rec.Rule != "Disallow: /private/"+text || !strings.Contains(rec.GroupAgents, text)) {
				t.Errorf("the record has the rule %q for %q", rec.Rule, rec.GroupAgents)
			}
			raw, err := os.ReadFile(filepath.Join(s.dir, "audit.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			shows("audit.jsonl", string(raw), "Disallow: /private/")
			shows("the log", s.log.String(), "")
		})
	}
}

// fetch asks the proxy for a URL.
func (s *server) fetch(t *testing.T, target, accept string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest("GET", target, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	transport := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: s.proxy})}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

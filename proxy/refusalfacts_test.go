package proxy

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// utf16Text returns s in little-endian UTF-16 with its mark.
func utf16Text(s string) string {
	b := []byte{0xFF, 0xFE}
	for _, u := range utf16.Encode([]rune(s)) {
		b = append(b, byte(u), byte(u>>8))
	}
	return string(b)
}

// A refused client gets the facts of its own request in each format, and no secret.
func TestRefusalFacts(t *testing.T) {
	for name, file := range map[string]string{
		"UTF-8": longFile, "UTF-16": utf16Text(longFile), "CR": strings.ReplaceAll(longFile, "\r\n", "\r"), "with a mark": "\ufeff" + longFile,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.ServeRobots, o.Contact = true, "mailto:ops@example.org" })
			r.site.SetRobots("a.example", robotstest.Robots{Body: file})
			client := r.client(true)
			ask := func(accept string) string {
				t.Helper()
				req, err := http.NewRequest("GET", r.url("http", "/private/x?token=s3cret&page=2"), nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Accept", accept)
				req.Header.Set("User-Agent", "NewsBot/2 (<script>alert(1)</script>)")
				resp, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				if err != nil || resp.StatusCode != http.StatusForbidden {
					t.Fatalf("%d, %v: %s", resp.StatusCode, err, body)
				}
				if strings.Contains(string(body), "s3cret") {
					t.Errorf("a secret is in %s", body)
				}
				return string(body)
			}

			var p problem
			if err := json.Unmarshal([]byte(ask("application/json")), &p); err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(p.URL, r.url("http", "/private/x?token=")) || !strings.HasSuffix(p.URL, "&page=2") || p.Crawler != "NewsBot" || p.Line != 6 ||
				p.Group == nil || *p.Group != (group{1, "*"}) || p.RobotsURL != r.url("http", "/robots.txt") || p.RobotsFetchedAt == nil || len(p.RobotsSHA256) != 64 ||
				p.Contact != "mailto:ops@example.org" || len(p.Lines) != 8 || p.Lines[4] != (shownLine{6, "Disallow: /private/", true}) {
				t.Errorf("%+v", p)
			}
			page := ask("text/html")
			for _, want := range []string{
				`<li data-n="6" class="hit">Disallow: /private/</li>`, "The whole file, as enforced", `<a href="mailto:ops@example.org">ops@example.org</a>`,
				"NewsBot/2 (&lt;script&gt;alert(1)&lt;/script&gt;)", "-A NewsBot</code>",
			} {
				if !strings.Contains(page, want) {
					t.Errorf("the page does not contain %s\n%s", want, page)
				}
			}
			text := ask("*/*")
			for _, want := range []string{
				"\nrule:    line 6: Disallow: /private/\n", "\ngroup:   * (line 1)\n", "\nurl:     " + p.URL + "\n", "\ncrawler: NewsBot\n",
				"\nrobots:  " + p.RobotsURL + " (fetched ", "\ncontact: mailto:ops@example.org\n", "\nrequest: ",
			} {
				if !strings.Contains(text, want) {
					t.Errorf("the text does not contain %q\n%s", want, text)
				}
			}
		})
	}
}

// If a redirect leads from /robots.txt to a page of another host, a refusal shows the rule and nothing else of the page,
// which the client may not be allowed to read.
func TestRefusalShowsNoPage(t *testing.T) {
	r := newRig(t, nil)
	r.site.SetRobots("a.example", robotstest.Robots{Redirect: strings.Replace(r.url("http", "/members"), "a.example", "b.example", 1)})
	r.site.SetPage("b.example", "/members", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "User-agent: *\nfor members only\nDisallow: /private/\nfor members only\n")
	})
	req, err := http.NewRequest("GET", r.url("http", "/private/x"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, accept := range []string{"text/html", "application/json", "text/plain"} {
		req.Header.Set("Accept", accept)
		resp, err := r.client(true).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusForbidden || strings.Contains(string(body), "members") || !strings.Contains(string(body), "Disallow: /private/") {
			t.Errorf("%s: %d, %v: %s", accept, resp.StatusCode, err, body)
		}
	}
}

// A shell reads the command of a refusal as it is meant.
func TestShellWord(t *testing.T) {
	for word, want := range map[string]string{
		"http://a.example/private/x": "http://a.example/private/x", "": "''", "a b": "'a b'", "a;b": "'a;b'", "~root": "'~root'", "a*": "'a*'", "é": "'é'",
		"http://a.example/$(id)?a&b": "'http://a.example/$(id)?a&b'", "it's": `'it'\''s'`, "a'; id '": `'a'\''; id '\'''`,
	} {
		if got := shellWord(word); got != want {
			t.Errorf("shellWord(%q) = %s, want %s", word, got, want)
		}
	}
}

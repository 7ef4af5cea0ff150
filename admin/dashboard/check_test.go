package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
)

// judged judges by one robots.txt for all origins.
type judged struct {
	policy *policy.Policy
	body   string
	err    error
}

func (j judged) Policy() *policy.Policy { return j.policy }

func (j judged) Snapshot(_ context.Context, o origin.Origin) (*robots.Snapshot, error) {
	if j.err != nil {
		return nil, j.err
	}
	return robots.NewSnapshot(robots.Answer{
		Origin: o, Availability: robots.Found, Status: 200, Body: []byte(j.body), ContentType: "text/plain", Fetched: time.Now(),
	}), nil
}

func (j judged) Wait(_ string, delay time.Duration) time.Duration { return 3 * delay }

func TestCheck(t *testing.T) {
	p, err := policy.New(policy.Options{Exemptions: []policy.Exemption{{
		Host: "exempt.example", Effect: policy.EffectAllow, Reason: "contract 12", Owner: "ops", Until: time.Now().Add(time.Hour),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	body := "User-agent: NewsBot\nCrawl-delay: 4\nDisallow: /private/\nAllow: /private/press/\n\nUser-agent: *\nDisallow: /\n" + hostile + "\n"
	server := serve(t, Options{Judge: judged{policy: p, body: body}})
	for question, want := range map[string][]string{
		"url=a.example/private/x&agent=NewsBot": {
			`class="outcome blocked">Blocked`, "NewsBot may not fetch /private/x on a.example: line 3", `<li data-n="3" class="hit" id="hit">Disallow: /private/`, "in force", "robotstxt-rb",
		},
		"url=http://a.example/private/press/1&agent=NewsBot/2.1": {
			`class="outcome on">Allowed`, `<li data-n="4" class="hit allow" id="hit">`, "would wait 12 s", "4 s", "Disallow: /private/",
		},
		"url=http://a.example/x":                        {`class="outcome blocked">Blocked`, "A crawler that the file does not name", `<li data-n="7" class="hit" id="hit">`},
		"url=https://exempt.example/private&agent=News": {`class="outcome on">Exempt`, "exemption"},
		"": {"Type a URL"},
	} {
		resp, page := get(t, server.URL+"/check?"+question)
		if resp.StatusCode != http.StatusOK || strings.Contains(page, hostile) {
			t.Errorf("%s: %s, or a script of a file", question, resp.Status)
		}
		for _, text := range want {
			if !strings.Contains(page, text) {
				t.Errorf("%s: the page does not contain %q\n%s", question, text, page)
			}
		}
	}
}

func TestCheckFaults(t *testing.T) {
	p, err := policy.New(policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	server := serve(t, Options{Judge: judged{policy: p, err: errors.New("no place is free")}})
	for raw, want := range map[string]string{
		"http://a b/":         "this is not a URL",
		"ftp://a.example/":    "ftp",
		"http://a.example/":   "no place is free",
		"http://u:p@a.b:1x/x": "this is not a URL",
	} {
		resp, page := get(t, server.URL+"/check?url="+url.QueryEscape(raw))
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(page, want) || !strings.Contains(page, `aria-invalid="true"`) {
			t.Errorf("%q: %s, want %q\n%s", raw, resp.Status, want, page)
		}
	}
}

// A large file is shown in part, with the line that decided.
func TestLargeFile(t *testing.T) {
	p, err := policy.New(policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("User-agent: *\n")
	for i := range 20000 {
		fmt.Fprintf(&b, "Disallow: /p%d/\n", i)
	}
	server := serve(t, Options{Judge: judged{policy: p, body: b.String()}})
	_, page := get(t, server.URL+"/check?url=http://a.example/p10000/")
	for _, text := range []string{`<li data-n="1">User-agent: *`, `class="gap"`, `<li data-n="10002" class="hit" id="hit">Disallow: /p10000/`} {
		if !strings.Contains(page, text) {
			t.Errorf("the page does not contain %q", text)
		}
	}
	if n := len(page); n > 100<<10 {
		t.Errorf("the page has %d bytes", n)
	}
}

func TestClients(t *testing.T) {
	records, _ := keptRecords(t, 9)
	server := serve(t, Options{Records: records})
	for path, want := range map[string][]string{
		"/clients":              {"NewsBot", ">9<", ">3<", "Is mine going through?"},
		"/clients?name=NewsBot": {`<span class="pill on">Yes</span>`},
		"/clients?name=Other":   {"Waiting for the first request of Other", `data-live="/live?agent=Other"`},
	} {
		resp, page := get(t, server.URL+path)
		for _, text := range want {
			if resp.StatusCode != http.StatusOK || !strings.Contains(page, text) {
				t.Errorf("%s: %s, without %q\n%s", path, resp.Status, text, page)
			}
		}
	}
}

func TestSettings(t *testing.T) {
	o := Options{State: func() admin.State { return admin.State{Mode: "enforce"} }, Settings: func() Settings {
		return Settings{
			Values: []Setting{{"listen", ":3128", "c.yaml:1:9", true}, {"robots.ttl", "24h", "default", false}},
			File:   "c.yaml", Reloaded: time.Now(), Changes: []admin.Change{{Key: "mode", Text: "mode: enforce -> report"}, {Key: "listen", Text: "listen: a -> b", Restart: true}},
			CAs: []CA{{Name: "robotsproxy CA", SHA256: "AA:BB", End: time.Now()}},
		}
	}}
	server := serve(t, o)
	_, page := get(t, server.URL+"/settings")
	for _, text := range []string{"c.yaml:1:9", "mode: enforce -&gt; report", "Needs a restart", "AA:BB", "No host is stopped"} {
		if !strings.Contains(page, text) {
			t.Errorf("the page does not contain %q\n%s", text, page)
		}
	}
	if strings.Contains(page, "robots.ttl") {
		t.Error("a default is among the keys that are set")
	}
	if _, page := get(t, server.URL+"/settings?keys=all"); !strings.Contains(page, "robots.ttl") {
		t.Error("a default is not among all keys")
	}
}

// A page of another site does not make the proxy fetch a robots.txt.
func TestCheckOfAnotherSite(t *testing.T) {
	p, err := policy.New(policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	server := serve(t, Options{Judge: judged{policy: p, err: errors.New("it was fetched")}})
	for site, fetched := range map[string]bool{"cross-site": false, "same-site": false, "same-origin": true, "none": true} {
		r := request(t, "GET", server.URL+"/check?url=http://a.example/", nil)
		r.Header.Set("Sec-Fetch-Site", site)
		if _, page := do(t, r); strings.Contains(page, "it was fetched") != fetched || !strings.Contains(page, `value="http://a.example/"`) {
			t.Errorf("%s: want a fetch: %t\n%s", site, fetched, page)
		}
	}
}

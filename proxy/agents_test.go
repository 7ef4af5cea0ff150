package proxy

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/robotsproxy/robotsproxy/policy"
)

func TestAgentLabels(t *testing.T) {
	const chrome = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36"
	for userAgent, want := range map[string]string{
		"":                                 "",
		"NewsBot/2.1 (+https://n.example)": "NewsBot",
		"NewsBot":                          "NewsBot",
		"Mozilla/5.0 (compatible; NewsBot/1.0; +http://n.example)": "NewsBot",
		chrome + " NewsBot/1.0": "NewsBot",
		"Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; Googlebot/2.1; +http://www.google.com/bot.html) Chrome/1 Safari/537.36": "Googlebot",
		"Wget/1.21.3":                        "Wget",
		"python-requests/2.28":               "python-requests",
		"Scrapy/2.8.0 (+https://scrapy.org)": "Scrapy",
		chrome:                               "browser",
		strings.Replace(chrome, "Chrome", "HeadlessChrome", 1): "browser",
		chrome + " Edg/120.0": "browser",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:109.0) Gecko/20100101 Firefox/115.0":                                                 "browser",
		"Mozilla/5.0 (Linux; Android 13; SM-G960F) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/1 Mobile Safari/537.3":                    "browser",
		"Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) AppleWebKit/605 (KHTML, like Gecko) Version/17.0 Mobile/15E148 Safari/604": "browser",
		"Mozilla/5.0 (compatible; MSIE 9.0; Windows NT 6.1; Trident/5.0)":                                                                  "browser",
		"Mozilla/5.0":                   "browser",
		"\x1b[31m;":                     "browser",
		"(":                             "browser",
		"Bot\x1b]0;x\x07/1":             "Bot",
		strings.Repeat("ж", 100) + "/1": strings.Repeat("ж", maxAgentBytes/2),
	} {
		if got := newAgents().label(userAgent); got != want {
			t.Errorf("the label of %q is %q, want %q", userAgent, got, want)
		}
	}
}

// However many names clients invent, the labels are few, short and printable.
func TestAgentLabelsAreBounded(t *testing.T) {
	a, seen := newAgents(), make(map[string]bool)
	a.label("NewsBot/1")
	for i := range 10 * maxAgents {
		label := a.label(fmt.Sprintf("%s\x1b-%d\u202e/%d", strings.Repeat("b", i%100), i, i))
		seen[label] = true
		if len(label) > maxAgentBytes || strings.ContainsFunc(label, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Fatalf("the label is %q", label)
		}
		seen[a.label(fmt.Sprintf("Bot%d/1", i))] = true
	}
	if len(seen) > maxAgents+2 || !seen[otherAgent] {
		t.Errorf("%d labels, want at most %d with %s", len(seen), maxAgents+2, otherAgent)
	}
	if got := a.label("NewsBot/2"); got != "NewsBot" {
		t.Errorf("a known label has become %q", got)
	}
}

// Records have the client and the agent, also those of a tunnel and of a request inside one.
func TestRecordsHaveTheAgent(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
	for i, scheme := range []string{"http", "https"} {
		req, err := http.NewRequest("GET", r.url(scheme, "/page/1"), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("User-Agent", "Mozilla/5.0 (compatible; NewsBot/1.0)")
		resp, err := r.client(i == 0).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if rec := r.last(i + 1); rec.Client != "local" || rec.Agent != "NewsBot" {
			t.Errorf("%s: client %q and agent %q, want local and NewsBot", scheme, rec.Client, rec.Agent)
		}
	}
}

// A client with a name for each request has the share of one: of a queue, and of limits.requests_per_client.
func TestManyAgentsAreOneClient(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Snapshots, o.Limits = fixed("User-agent: *\nCrawl-delay: 20\n"), Limits{Requests: 100, RequestsPerClient: 3}
	})
	r.get(r.client(true), r.url("http", "/page/1"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ask := func(agent, from string) *http.Response {
		req, err := http.NewRequestWithContext(ctx, "GET", r.url("http", "/page/2"), nil)
		if err != nil {
			t.Error(err)
			return nil
		}
		req.Header.Set("User-Agent", agent)
		resp, err := r.clientFrom(from).Do(req)
		if err != nil {
			return nil // canceled at the end
		}
		resp.Body.Close()
		return resp
	}
	for i := range 3 {
		go ask("Bot"+strconv.Itoa(i)+"/1.0", "127.0.0.2")
		r.eventually("one more that waits", func() bool { return r.limiter.Stats().Waiting == i+1 })
	}
	if v, _ := r.limiter.Peek("a.example"); v.Clients != 1 {
		t.Errorf("%d clients wait, want one for all names", v.Clients)
	}
	if resp := ask("Another/1.0", "127.0.0.2"); resp == nil || resp.Header.Get("Robotsproxy-Reason") != string(policy.ReasonOverload) {
		t.Errorf("one request too many of a client with a new name is answered %v, want overload", resp)
	}
	go ask("Bot0/1.0", "127.0.0.3")
	r.eventually("another client", func() bool { return r.limiter.Stats().Waiting == 4 })
	cancel()
	r.eventually("the end of all", func() bool { return r.server.Active() == 0 })
}

func BenchmarkAgentLabel(b *testing.B) {
	a := newAgents()
	const userAgent = "Mozilla/5.0 (compatible; NewsBot/1.0; +http://n.example/bot.html)"
	b.ReportAllocs()
	for b.Loop() {
		a.label(userAgent)
	}
}

package main

import (
	"cmp"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// askers are real clients, each of which asks for one URL and reports what it sees. auth.txtar has curl.
var askers = []struct {
	name  string
	needs func(t *testing.T)
	ask   func(t *testing.T, c crawl) string // with the credentials in c.proxy

	refused, refusedTunnel string // patterns of the report for wrong and missing credentials
}{
	{"requests", python("requests"), askWithScript("requests_get.py"), `^407 auth$`, `^ProxyError .*407`},
	{"scrapy", python("scrapy"), askWithScript("scrapy_get.py"), `^407 auth$`, `^TunnelError.*407`},
	{"java", program("java"), askWithJava, `^407 auth$`, `^407 auth$`},
	{"chromium", needChromium, askWithChromium, `^407 auth$`, `^net::ERR_`},
}

// TestClientsAreAskedForPasswords checks that real clients understand a 407: with the right password they get the page,
// with a wrong one or none they report the 407, and nothing reaches the origin.
func TestClientsAreAskedForPasswords(t *testing.T) {
	long(t)
	for _, client := range askers {
		for _, scheme := range []string{"http", "https"} {
			t.Run(client.name+"/"+scheme, func(t *testing.T) {
				t.Parallel()
				client.needs(t)
				site := robotstest.New(t)
				s, c := startCrawl(t, site, scheme, "news:s3cr3t@")
				c.start += "page/1"
				for _, row := range []struct {
					name string
					crawl
					want string
				}{
					{"none", c.with("", s.proxy), client.refused},
					{"a wrong password", c.with("news:wr0ng@", s.proxy), client.refused},
					{"the password", c.with("news:s3cr3t@", s.proxy), `^200`},
				} {
					if scheme == "https" && row.want == client.refused {
						row.want = client.refusedTunnel
					}
					before := len(site.Paths("a.example"))
					got := strings.TrimSpace(client.ask(t, row.crawl))
					if !regexp.MustCompile(row.want).MatchString(got) {
						t.Errorf("with %s it reports %q, want %q", row.name, got, row.want)
					}
					if n := len(site.Paths("a.example")) - before; n > 0 && !strings.HasPrefix(row.want, "^200") {
						t.Errorf("with %s %d requests reached the origin", row.name, n)
					}
				}
			})
		}
	}
}

// with returns c with other userinfo in the URL of the proxy at addr.
func (c crawl) with(userinfo, addr string) crawl {
	before, after := c.proxy, "http://"+userinfo+addr
	env := make([]string, len(c.env))
	for i, entry := range c.env {
		env[i] = strings.Replace(entry, before, after, 1)
	}
	c.env, c.proxy = env, after
	return c
}

// credentials returns the user and the password in the URL of the proxy; ok is false if it has none.
func (c crawl) credentials(t *testing.T) (user, password string, ok bool) {
	t.Helper()
	u, err := url.Parse(c.proxy)
	if err != nil {
		t.Fatal(err)
	}
	password, ok = u.User.Password()
	return u.User.Username(), password, ok
}

func askWithScript(name string) func(*testing.T, crawl) string {
	return func(t *testing.T, c crawl) string {
		path, err := filepath.Abs(filepath.Join("testdata", "clients", name))
		if err != nil {
			t.Fatal(err)
		}
		return c.output(t, exec.Command(systemPython, "-B", path, c.start))
	}
}

// askWithJava permits Basic credentials in CONNECT, which Java does not send otherwise.
func askWithJava(t *testing.T, c crawl) string {
	path, err := filepath.Abs(filepath.Join("testdata", "clients", "Get.java"))
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-Djdk.http.auth.tunneling.disabledSchemes=", path, c.start}
	if user, password, ok := c.credentials(t); ok {
		args = append(args, user, password)
	}
	return c.output(t, exec.Command("java", args...))
}

// askWithChromium answers the challenge as a user would in its dialog: once, or not at all.
func askWithChromium(t *testing.T, c crawl) string {
	user, password, known := c.credentials(t)
	c.dir = t.TempDir() // of a browser that remembers nothing
	_, addr, _ := strings.Cut(c.proxy, "@")
	b := newBrowser(t, c, "proxy-server", cmp.Or(addr, c.proxy))
	var answers []*fetch.AuthChallengeResponse
	if known {
		answers = append(answers, &fetch.AuthChallengeResponse{
			Response: fetch.AuthChallengeResponseResponseProvideCredentials, Username: user, Password: password,
		})
	}
	b.answerChallenges(answers)
	isPage := func(e network.EventResponseReceived) bool {
		return e.Type == network.ResourceTypeDocument && e.Response.URL == c.start
	}
	got, err := chromedp.Run(b.ctx, chromedp.WaitEvent(network.ResponseReceived, isPage, chromedp.Navigate(c.start)))
	if err != nil {
		text := err.Error()
		return text[max(0, strings.Index(text, "net::")):]
	}
	return fmt.Sprintf("%d %s", got.Response.Status, field(got.Response, "Robotsproxy-Reason"))
}

// answerChallenges gives each challenge the next of answers, and cancels those after the last one.
func (b *browser) answerChallenges(answers []*fetch.AuthChallengeResponse) {
	b.t.Helper()
	events := make(chan any, 1000) // Listen must not wait
	if err := chromedp.Listen(b.ctx, func(ev any) { events <- ev }); err != nil {
		b.t.Fatal(err)
	}
	go func() {
		for {
			var ev any
			select {
			case ev = <-events:
			case <-b.ctx.Done():
				return
			}
			switch ev := ev.(type) {
			case *fetch.EventRequestPaused:
				_, _ = chromedp.Call(b.ctx, fetch.ContinueRequest, fetch.ContinueRequestParams{RequestID: ev.RequestID})
			case *fetch.EventAuthRequired:
				answers = append(answers, &fetch.AuthChallengeResponse{Response: fetch.AuthChallengeResponseResponseCancelAuth})
				answer := fetch.ContinueWithAuthParams{RequestID: ev.RequestID, AuthChallengeResponse: answers[0]}
				answers = answers[1:]
				if ev.AuthChallenge.Source != fetch.AuthChallengeSourceProxy || ev.AuthChallenge.Realm != "robotsproxy" {
					b.t.Errorf("the challenge is %+v, want one of the proxy", ev.AuthChallenge)
				}
				_, _ = chromedp.Call(b.ctx, fetch.ContinueWithAuth, answer)
			}
		}
	}()
	handle := true
	if _, err := chromedp.Call(b.ctx, fetch.Enable, fetch.EnableParams{HandleAuthRequests: &handle}); err != nil {
		b.t.Fatal(err)
	}
}

package robots_test

import (
	"net/http"
	"testing"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

func TestFlagsText(t *testing.T) {
	for m := range robots.Downgraded << 1 {
		if got, err := fetch.ParseFlags(m.String()); got != m || err != nil {
			t.Errorf("ParseFlags(%q) = %d, %v; want %d", m, got, err, m)
		}
	}
	if got, want := (robots.WebPage | robots.Downgraded).String(), "html,downgraded"; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
	for _, text := range []string{"x", "html,", ",", "html, unauthorized", "HTML"} {
		if m, err := fetch.ParseFlags(text); err == nil {
			t.Errorf("ParseFlags(%q) = %v, want an error", text, m)
		}
	}
}

// TestFlags has an answer for each.
func TestFlags(t *testing.T) {
	site := robotstest.New(t)
	to := func(url string) robotstest.Robots { return robotstest.Robots{Redirect: url} }
	site.SetRobots("plain.example", robotstest.Robots{Body: file})
	site.SetRobots("page.example", robotstest.Robots{Body: "<html>"})
	site.SetRobots("locked.example", robotstest.Robots{Status: 401})
	site.SetRobots("forbidden.example", robotstest.Robots{Status: 403})
	site.SetRobots("gone.example", robotstest.Robots{Status: 404, Body: "<html>"})
	site.SetRobots("up.example", to("https://plain.example/robots.txt"))
	site.SetRobots("to-page.example", to("http://page.example/robots.txt"))
	site.SetRobots("to-locked.example", to("http://locked.example/robots.txt"))
	site.SetRobots("down.example", robotstest.Robots{Handler: func(w http.ResponseWriter, r *http.Request) {
		scheme := map[bool]string{true: "http://plain.example", false: "https://down.example"}[r.TLS != nil]
		http.Redirect(w, r, scheme+"/robots.txt", http.StatusFound)
	}})
	site.SetRobots("self.example", to("/robots.txt"))
	chain(site, 6)
	f := newFetcher(t, site, nil)
	strict := newFetcher(t, site, func(o *fetch.Options) { o.UnauthorizedRefuses, o.HTMLRefuses = true, true })
	for from, want := range map[string]fetch.Flags{
		"http://plain.example":      0,
		"http://gone.example":       0,
		"http://page.example":       robots.WebPage,
		"http://locked.example":     robots.Unauthorized,
		"http://forbidden.example":  robots.Unauthorized,
		"http://up.example":         0,
		"https://up.example":        0,
		"http://to-page.example":    robots.WebPage,
		"https://to-page.example":   robots.WebPage | robots.Downgraded,
		"https://to-locked.example": robots.Unauthorized | robots.Downgraded,
		"http://down.example":       robots.Downgraded,
		"https://down.example":      robots.Downgraded,
		"http://self.example":       robots.RedirectLoop,
		"http://hop-0.example":      robots.TooManyRedirects | robots.Downgraded,
		"http://hop-1.example":      robots.Downgraded,
	} {
		for name, f := range map[string]*fetch.Fetcher{"as by default": f, "with everything refused": strict} {
			if snap := fetched(t, f, from); snap.Flags != want {
				t.Errorf("%s: Fetch(%s) has the marks %q, want %q", name, from, snap.Flags, want)
			}
		}
	}
}

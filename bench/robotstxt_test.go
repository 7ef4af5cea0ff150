package bench

import (
	"net/http"
	"testing"
	"time"

	temoto "github.com/temoto/robotstxt"

	"github.com/robotsproxy/robotsproxy/rules/robotstxt"
)

// calls is the API of github.com/temoto/robotstxt, in which only the names of its types are left open. That both
// packages fit in is what makes rules/robotstxt a drop-in, and is held by the compiler.
type calls[Data interface {
	*D
	TestAgent(path, agent string) bool
	FindGroup(agent string) Group
}, Group interface {
	*G
	Test(path string) bool
}, Err error, D, G any] struct {
	fromBytes           func([]byte) (Data, error)
	fromString          func(string) (Data, error)
	fromStatusAndBytes  func(int, []byte) (Data, error)
	fromStatusAndString func(int, string) (Data, error)
	fromResponse        func(*http.Response) (Data, error)
	fields              func(Data) (host string, sitemaps []string)
	groupFields         func(Group) (agent string, delay time.Duration)
	parseError          func(errs []error) Err
}

var theirs = calls[*temoto.RobotsData, *temoto.Group, temoto.ParseError, temoto.RobotsData, temoto.Group]{
	temoto.FromBytes, temoto.FromString, temoto.FromStatusAndBytes, temoto.FromStatusAndString, temoto.FromResponse,
	func(d *temoto.RobotsData) (string, []string) { return d.Host, d.Sitemaps },
	func(g *temoto.Group) (string, time.Duration) { return g.Agent, g.CrawlDelay },
	func(errs []error) temoto.ParseError { return temoto.ParseError{Errs: errs} },
}

var ours = calls[*robotstxt.RobotsData, *robotstxt.Group, robotstxt.ParseError, robotstxt.RobotsData, robotstxt.Group]{
	robotstxt.FromBytes, robotstxt.FromString, robotstxt.FromStatusAndBytes, robotstxt.FromStatusAndString, robotstxt.FromResponse,
	func(d *robotstxt.RobotsData) (string, []string) { return d.Host, d.Sitemaps },
	func(g *robotstxt.Group) (string, time.Duration) { return g.Agent, g.CrawlDelay },
	func(errs []error) robotstxt.ParseError { return robotstxt.ParseError{Errs: errs} },
}

// TestDropIn asks both the same, in all ways that there are to ask.
func TestDropIn(t *testing.T) {
	const robots = "User-agent: a\nDisallow: /a\nAllow: /a/b\nCrawl-delay: 2.5\nHost: a.example\nSitemap: https://a.example/s\n"
	for _, status := range []int{200, 204, 301, 404, 429, 500, 503} {
		got, gotErr := ours.fromStatusAndString(status, robots)
		want, wantErr := theirs.fromStatusAndString(status, robots)
		if (gotErr == nil) != (wantErr == nil) {
			t.Errorf("FromStatusAndString(%d): error %v, temoto %v", status, gotErr, wantErr)
		}
		if gotErr != nil || wantErr != nil {
			continue
		}
		for _, path := range []string{"/", "/a", "/a/b", "/b?a"} {
			for _, agent := range []string{"a", "A/1.0", "b"} {
				if got, want := got.TestAgent(path, agent), want.TestAgent(path, agent); got != want {
					t.Errorf("status %d: TestAgent(%q, %q) = %v, temoto %v", status, path, agent, got, want)
				}
			}
		}
	}
	got, _ := ours.fromString(robots)
	want, _ := theirs.fromString(robots)
	gotHost, gotMaps := ours.fields(got)
	wantHost, wantMaps := theirs.fields(want)
	if gotHost != wantHost || len(gotMaps) != 1 || gotMaps[0] != wantMaps[0] {
		t.Errorf("Host, Sitemaps = %q, %q, temoto %q, %q", gotHost, gotMaps, wantHost, wantMaps)
	}
	_, gotDelay := ours.groupFields(got.FindGroup("a"))
	_, wantDelay := theirs.groupFields(want.FindGroup("a"))
	if gotDelay != wantDelay {
		t.Errorf("CrawlDelay = %v, temoto %v", gotDelay, wantDelay)
	}
	if got, err := ours.fromResponse(nil); got != nil || err != nil {
		t.Errorf("FromResponse(nil) = %v, %v, want nil, nil as temoto", got, err)
	}
}

//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// A client that requests long paths in several forms from a site with a slow robots.txt is refused each time, and
// another client is not slowed.
func TestHostileRules(t *testing.T) {
	site := robotstest.New(t)
	site.SetRobots("slow.example", robotstest.Robots{Body: complexRobots})
	s := newScene(t, site, "", "slow.example")
	long := fmt.Sprintf("http://slow.example:%d/x//..;/%s/..%%2Fy", site.Port(), strings.Repeat("a", 60_000))
	var refused atomic.Int64
	attack := func(ctx context.Context, c *http.Client) error {
		req, err := http.NewRequestWithContext(ctx, "GET", long, nil)
		if err != nil {
			return err
		}
		resp, err := c.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if reason := resp.Header.Get("Robotsproxy-Reason"); resp.StatusCode != http.StatusForbidden || reason != "too-complex" {
			return fmt.Errorf("got %s %q, want 403 too-complex", resp.Status, reason)
		}
		refused.Add(1)
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	ask := s.get("other", fmt.Sprintf("http://a.example:%d/page/1", site.Port()))
	begin := func(ctx context.Context) {
		for range 4 {
			c := &http.Client{Transport: s.transport("one")}
			if err := attack(ctx, c); err != nil {
				t.Fatal(err)
			}
			go func() {
				for ctx.Err() == nil {
					if err := attack(ctx, c); err != nil && ctx.Err() == nil {
						t.Error(err)
						return
					}
				}
			}()
		}
	}
	for round := range 3 { // the attack uses one processor, and other programs may use the other one
		err := s.harm(30, ask, begin)
		if err == nil {
			break
		}
		if round == 2 {
			t.Error(err)
		}
	}
	t.Logf("%d requests were refused", refused.Load())
	if len(site.Paths("slow.example")) != 1 {
		t.Errorf("the site was asked for %.100q, want its robots.txt alone", site.Paths("slow.example"))
	}
}

package robots_test

import (
	"context"
	"fmt"
	"log"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

func Example() {
	site, err := robotstest.Start(robotstest.Options{}) // in the place of the web
	if err != nil {
		log.Fatal(err)
	}
	defer site.Close()
	site.SetRobots("a.example", robotstest.Robots{Body: "User-agent: NewsBot\nDisallow: /private\n"})
	site.SetRobots("b.example", robotstest.Robots{Status: 503})
	transport := site.Transport()
	defer transport.CloseIdleConnections()

	f, err := fetch.New(fetch.Options{Transport: transport, UserAgent: "robotsproxy/1.0"})
	if err != nil {
		log.Fatal(err)
	}
	c, err := robots.NewCache(robots.CacheOptions{Fetch: f.Fetch})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	for _, url := range []string{"https://a.example", "https://a.example", "http://b.example", "http://c.example"} {
		o, err := origin.Parse(url)
		if err != nil {
			log.Fatal(err)
		}
		snap, err := c.Snapshot(context.Background(), o, robots.Asker{})
		if err != nil {
			log.Fatal(err)
		}
		v := snap.Rules.Agent("NewsBot").Verdict("/private/x")
		fmt.Printf("%s %s %v %q\n", o, snap.State(), snap.Availability != robots.Unreachable && v.Allowed, v.Rule)
	}
	stats := c.Stats()
	fmt.Println(stats.Hits, "hit,", stats.Fetches, "fetches,", stats.Failures, "failure")
	// Output:
	// https://a.example found false "Disallow: /private"
	// https://a.example found false "Disallow: /private"
	// http://b.example unreachable false ""
	// http://c.example unavailable true ""
	// 1 hit, 3 fetches, 1 failure
}

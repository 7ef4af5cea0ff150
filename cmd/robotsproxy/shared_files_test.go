package main

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/pgtest"
	"github.com/robotsproxy/robotsproxy/internal/redistest"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// expectFetches compares the number of fetches of the robots.txt of b.example.
func (f *fleet) expectFetches(when string, want int) {
	f.t.Helper()
	if n := f.robotsFetches(); n != want {
		f.t.Errorf("%s the origin was asked %d times for its robots.txt, want %d", when, n, want)
	}
}

// expectStatus requests target of b.example through an instance.
func (f *fleet) expectStatus(i int, target string, want int) {
	f.t.Helper()
	if resp := f.get(f.through(i), "b.example", target); resp.StatusCode != want {
		f.t.Errorf("the instance %d answers a request for %s with %s, want %d", i, target, resp.Status, want)
	}
}

// origin returns b.example as the commands name it.
func (f *fleet) origin() string { return fmt.Sprintf("http://b.example:%d", f.site.Port()) }

// An instance that cannot reach Redis while another one purges a file obeys the purge after its return.
func TestInstanceMissesAPurge(t *testing.T) {
	long(t)
	server := redistest.Start(t)
	relay := redistest.NewRelay(t, server.Addr())
	f := newFleet(t, 1, redisConfig(server, "local"))
	f.add(fmt.Sprintf("redis: {url: %q, on_down: local}\n", relay.URL()))
	f.site.SetRobots("b.example", robotstest.Robots{Body: "User-agent: *\nDisallow: /private\n"})
	f.expectStatus(0, "/private", http.StatusForbidden)
	f.expectStatus(1, "/private", http.StatusForbidden)
	f.expectFetches("for two instances", 1)
	relay.Part()
	f.site.SetRobots("b.example", robotstest.Robots{Body: "User-agent: *\nDisallow: /other\n"})
	f.command(0, "cache", "purge", f.origin())
	f.expectStatus(1, "/private", http.StatusForbidden) // it does not know
	relay.Join()
	settle(t, "the instance obeys the purge", func() bool {
		return f.get(f.through(1), "b.example", "/other").StatusCode == http.StatusForbidden
	})
	f.expectStatus(0, "/other", http.StatusForbidden)
	f.expectFetches("after a purge", 2)
}

// A robots.txt that has become too large to be shared replaces the older one at all instances, each of which fetches it.
func TestFileThatIsTooLargeToShare(t *testing.T) {
	long(t)
	f := newFleet(t, 3, redisConfig(redistest.Start(t), "local"))
	f.site.SetRobots("b.example", robotstest.Robots{Body: "User-agent: *\nDisallow: /private\n"})
	ask := func(target string) {
		t.Helper()
		for i := range f.instances {
			f.expectStatus(i, target, http.StatusForbidden)
		}
	}
	ask("/private")
	f.expectFetches("for three instances", 1)
	noise := make([]byte, 150_000)
	_, _ = rand.Read(noise)
	f.site.SetRobots("b.example", robotstest.Robots{Body: "User-agent: *\nDisallow: /other\n# " + hex.EncodeToString(noise)})
	f.command(0, "cache", "refresh", f.origin())
	settle(t, "a second instance obeys the large file", func() bool {
		return f.get(f.through(1), "b.example", "/other").StatusCode == http.StatusForbidden
	})
	for range 5 {
		ask("/other")
		time.Sleep(100 * time.Millisecond) // for notices, of which there must be none
	}
	f.expectFetches("for a large file at three instances", 4)
}

// Instances whose settings differ in what a 403 means judge by their own fetch, and do not fetch in turn without end.
func TestInstancesWithOtherSettings(t *testing.T) {
	long(t)
	for name, config := range map[string]string{
		"redis": redisConfig(redistest.Start(t), "local"), "postgres": postgresConfig(t, pgtest.Database(t)),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 1, config+"robots: {on_unauthorized: allow}\n")
			f.add(config + "robots: {on_unauthorized: refuse}\n")
			f.site.SetRobots("b.example", robotstest.Robots{Status: http.StatusForbidden, Body: "no"})
			for range 10 {
				f.expectStatus(0, "/page/1", http.StatusOK)
				f.expectStatus(1, "/page/1", http.StatusServiceUnavailable)
				time.Sleep(50 * time.Millisecond) // for notices
			}
			f.expectFetches("by two instances", 2)
		})
	}
}

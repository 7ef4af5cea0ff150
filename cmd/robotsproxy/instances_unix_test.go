//go:build unix

package main

import (
	"cmp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/redistest"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// One of two instances hangs for longer than a lease, goes on, and is killed, under load. Both hold leases of a host with
// a Delay and keep leases of a host without. The other instance goes on each time.
func TestInstanceThatHangsAndIsKilled(t *testing.T) {
	long(t)
	f := newFleet(t, 2, redisConfig(redistest.Start(t), "spread")+"pacing: {max_concurrent: 4}\n")
	f.site.SetRobots("b.example", robotstest.Robots{Body: "User-agent: *\nDisallow: /private/\n"})
	f.hosts = []string{"a.example", "b.example", "b.example", "b.example"}
	both := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	first := []int{0, 2, 4, 6, 8, 10, 12, 14} // the workers of the first instance
	signal := func(s syscall.Signal) {
		t.Helper()
		if err := f.instances[1].cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		f.counts()
	}
	f.crawl(len(both))
	f.serves("with both", both)
	for range 2 {
		signal(syscall.SIGSTOP)
		f.serves("while one hangs", first)
		time.Sleep(6 * time.Second) // longer than a lease
		f.serves("while one hangs", first)
		signal(syscall.SIGCONT)
		f.serves("after that", both)
		time.Sleep(lasting(time.Second))
	}
	signal(syscall.SIGKILL)
	f.serves("after one was killed", first)
	time.Sleep(lasting(time.Second))
	checkGaps(t, "a host with a Delay", f.halt())
	requests := f.site.Requests()
	if n := mostAtOnce(requests, "b.example"); n != 4 {
		t.Errorf("the host without a Delay got %d requests at once, want 4", n)
	}
}

// mostAtOnce returns how many requests to host were in progress at once at most.
func mostAtOnce(requests []robotstest.Request, host string) (most int) {
	type moment struct {
		at    time.Time
		after int // 1: a request starts, -1: one ends
	}
	var moments []moment
	for _, r := range requests {
		if name, _, _ := strings.Cut(r.Host, ":"); name == host && r.Target != "/robots.txt" {
			moments = append(moments, moment{r.Start, 1}, moment{cmp.Or(r.End, time.Now()), -1})
		}
	}
	slices.SortFunc(moments, func(a, b moment) int { return cmp.Or(a.at.Compare(b.at), a.after-b.after) })
	n := 0
	for _, m := range moments {
		n += m.after
		most = max(most, n)
	}
	return most
}

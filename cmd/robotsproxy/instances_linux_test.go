package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/redistest"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// One of two instances hangs for longer than a lease, goes on, and is killed, under load. It holds leases of a host with
// a Delay and of one without, which both instances use, and keeps leases of one that only it has used. The other instance
// goes on each time.
func TestInstanceThatHangsAndIsKilled(t *testing.T) {
	long(t)
	f := newFleet(t, 2, redisConfig(redistest.Start(t), "spread")+"pacing: {max_concurrent: 4}\n")
	for _, host := range []string{"b.example", "c.example"} {
		f.site.SetRobots(host, robotstest.Robots{Body: "User-agent: *\nDisallow: /private/\n"})
	}
	f.hosts = []string{"a.example", "b.example", "b.example", "b.example"}
	both := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	first := []int{0, 2, 4, 6, 8, 10, 12, 14} // the workers of the first instance
	f.crawl(len(both))
	f.serves("with both", both)
	endSecond := f.flood(1, "c.example")
	time.Sleep(lasting(time.Second))
	endSecond()
	f.signal(1, syscall.SIGSTOP)
	endFirst := f.flood(0, "c.example")
	f.serves("while one hangs", first)
	time.Sleep(6 * time.Second) // longer than a lease
	f.serves("while one hangs", first)
	endSecond = f.flood(1, "c.example") // these requests start as soon as the instance goes on
	time.Sleep(lasting(time.Second))
	f.signal(1, syscall.SIGCONT)
	f.serves("after that", both)
	time.Sleep(lasting(time.Second))
	endFirst()
	endSecond()
	f.signal(1, syscall.SIGKILL)
	f.serves("after one was killed", first)
	time.Sleep(lasting(time.Second))
	checkGaps(t, "a host with a Delay", f.halt())
	for _, host := range []string{"b.example", "c.example"} {
		if n := mostAtOnce(f.site.Requests(), host); n != 4 {
			t.Errorf("%s got %d requests at once, want 4", host, n)
		}
	}
}

// signal sends a signal to an instance, and resets the counts.
func (f *fleet) signal(i int, s syscall.Signal) {
	f.t.Helper()
	if err := f.instances[i].cmd.Process.Signal(s); err != nil {
		f.t.Fatal(err)
	}
	f.counts()
}

// flood makes eight workers request pages of host through an instance, until end is called.
func (f *fleet) flood(i int, host string) (end func()) {
	client, stop := f.through(i), make(chan struct{})
	page := fmt.Sprintf("http://%s:%d/delay/5ms", host, f.site.Port())
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := get(client, page); err != nil {
					f.t.Error(err)
					return
				}
			}
		})
	}
	return func() { close(stop); workers.Wait() }
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

//go:build linux

package main

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/robotsproxy/robotsproxy/bench/internal/lab"
)

// runs are the rows of the table, by the name that -runs takes.
var runs = []struct {
	name string
	do   func(b *bench) error
}{
	{"latency", (*bench).latency},
	{"dead", (*bench).dead},
	{"second", (*bench).second},
	{"overload", (*bench).overload},
	{"plain", (*bench).plain},
	{"https", (*bench).https},
	{"redis", (*bench).redis},
	{"delay", (*bench).delay},
	{"memory", (*bench).memory},
	{"restart", (*bench).restart},
	{"plan", (*bench).planCommand},
}

// deadWeb is a web of which three hosts in ten are dead.
var deadWeb = webOptions{hosts: 5000, dead: third, latency: 20 * time.Millisecond, robotsSize: 500, shared: 0.5}

// latency has clients that do not begin together, so that their requests arrive evenly.
func (b *bench) latency() error {
	m, err := b.three(b.plan(plan{
		name: "latency", connections: 500, ramp: 600 * time.Millisecond, pages: 1,
		web: webOptions{hosts: 6000, latency: 300 * time.Millisecond, robotsSize: 500, shared: 0.5},
	}))
	if err != nil {
		return err
	}
	b.goal(goal{"latency", "new hosts/s", m.cells(rate), ">= 1.0 x direct", rate(m.proxy) >= rate(m.direct)})
	return nil
}

// dead has clients that begin one after the other. Else all would meet dead hosts, and be done with them, together.
func (b *bench) dead() error {
	m, err := b.three(b.plan(plan{name: "dead", connections: 500, ramp: patience, pages: 1, web: deadWeb}))
	if err != nil {
		return err
	}
	b.goal(goal{"dead", "pages/s", m.cells(rate), ">= 1.0 x direct", rate(m.proxy) >= rate(m.direct)})
	soon := median(m.proxy) <= 1.5*median(m.direct)
	b.goal(goal{"dead", "p50 of living hosts, ms", m.cells(median), "<= 1.5 x direct", soon})
	return nil
}

// second compares the first visits of a second crawler, which has another address, alone and beside the run dead.
func (b *bench) second() error {
	const visits, connections = 200, 4
	p := b.plan(plan{name: "second", connections: 500, ramp: patience, pages: 1, web: deadWeb})
	p.web.spare = 2 * visits
	s, err := b.open(p, robotsproxySide)
	if err != nil {
		return err
	}
	defer s.close()
	hosts := p.web.hosts
	alone := s.crawl(hosts, hosts+visits, connections, "127.0.0.2").millis(0.5)
	first := make(chan *visited)
	go func() { first <- s.crawl(0, hosts, p.connections, "127.0.0.1") }()
	time.Sleep(p.ramp) // then all clients of the first crawler have begun
	beside := s.crawl(hosts+visits, hosts+2*visits, connections, "127.0.0.2").millis(0.5)
	if _, err := b.measured(s, <-first); err != nil {
		return err
	}
	got := []string{number(beside), "alone " + number(alone)}
	b.goal(goal{"second", "p50 of a second crawler, ms", got, "<= 1.1 x alone", beside <= 1.1*alone})
	return nil
}

func (b *bench) overload() error {
	p := plan{name: "overload", connections: 2000, pages: 1, web: deadWeb}
	p.web.hosts = 6000
	m, err := b.three(b.plan(p))
	if err != nil {
		return err
	}
	overload := func(m *measurement) float64 { return float64(m.overload) }
	never := func(m *measurement) float64 { return float64(m.living - m.fetched) }
	b.goal(goal{"overload", "503 overload", m.cells(overload), "0", overload(m.proxy) == 0})
	b.goal(goal{"overload", "living hosts never fetched", m.cells(never), "0", never(m.proxy) == 0})
	return nil
}

func (b *bench) plain() error {
	return b.cpu(plan{
		name: "plain", connections: 50, pages: 3,
		web: webOptions{hosts: 10_000, robotsSize: 1000, shared: 0.5},
	}, 400)
}

func (b *bench) https() error {
	return b.cpu(plan{
		name: "https", connections: 50, pages: 2, rounds: true,
		web: webOptions{hosts: 20_000, robotsSize: 1000, shared: 0.5, secure: true},
	}, 1450)
}

// cpu compares the processor time for a page, in microseconds.
func (b *bench) cpu(p plan, most float64) error {
	m, err := b.three(b.plan(p))
	if err != nil {
		return err
	}
	got := []string{number(m.proxy.cpuMicros()), "", number(m.goproxy.cpuMicros())}
	b.goal(goal{p.name, "CPU a page, us", got, "<= " + number(most), m.proxy.cpuMicros() <= most})
	return nil
}

func (b *bench) delay() error {
	m, err := b.run(b.plan(plan{
		name: "delay", connections: 500, pages: 500, rounds: true,
		web: webOptions{hosts: 2000, delay: 200 * time.Millisecond, robotsSize: 500, shared: 0.5},
	}), robotsproxySide)
	if err != nil {
		return err
	}
	bad, conns := m.short+m.overlaps, m.per(m.conns)
	b.goal(goal{"delay", "gaps too short, of " + count(m.gaps), []string{count(bad)}, "0", bad == 0})
	b.goal(goal{"delay", "new connections a page", []string{number(conns)}, "<= 0.05", conns <= 0.05})
	b.goal(goal{run: "delay", what: "DNS questions", got: []string{count(m.questions)}})
	return nil
}

// cacheSize is the default of robots.cache_size.
const cacheSize = 256 << 20

func (b *bench) memory() error {
	s, m, err := b.fill("memory", 200_000)
	if err != nil {
		return err
	}
	defer s.close()
	const most = 1.5*cacheSize + 100<<20
	hosts := s.plan.web.hosts
	b.goal(goal{
		"memory", fmt.Sprintf("peak memory for %d hosts, MiB", hosts),
		[]string{number(mebi(m.memory))},
		"<= " + number(mebi(most)), m.memory <= most,
	})
	return b.again(s, m)
}

func (b *bench) restart() error {
	s, m, err := b.fill("restart", 20_000)
	if err != nil {
		return err
	}
	defer s.close()
	return b.again(s, m)
}

// fill crawls one page of each host, half of which have a robots.txt of their own. It measures the memory after half of
// the hosts too.
func (b *bench) fill(name string, hosts int) (*session, *measurement, error) {
	p := b.plan(plan{
		name: name, connections: 100, pages: 1,
		web: webOptions{hosts: hosts, robotsSize: 1000, shared: 0.5},
	})
	s, err := b.open(p, robotsproxySide)
	if err != nil {
		return nil, nil, err
	}
	hosts = p.web.hosts
	v := s.crawl(0, hosts/2, p.connections, "127.0.0.1")
	half, err := lab.PeakMemory(s.proxy.cmd.Process.Pid)
	if err == nil {
		b.goal(goal{run: name, what: "peak memory after half of the hosts, MiB", got: []string{number(mebi(half))}})
		v.add(s.crawl(hosts/2, hosts, p.connections, "127.0.0.1"))
		slices.Sort(v.latencies)
	}
	m, failure := b.measured(s, v)
	if err := errors.Join(err, failure); err != nil {
		s.close()
		return nil, nil, err
	}
	return s, m, nil
}

// again restarts the proxy of a session, and measures the time until it answers a request for a host of its state.db.
func (b *bench) again(s *session, before *measurement) error {
	if err := s.proxy.stop(); err != nil {
		return err
	}
	size := s.stateSize()
	each := count(size / int64(s.plan.web.hosts))
	b.goal(goal{run: s.name, what: "state.db, bytes a host", got: []string{each}})
	begun := time.Now()
	if err := s.start(); err != nil {
		return err
	}
	status, reason, err := (&proxied{web: s.web, addr: s.proxy.addr}).get(0, "/page/again")
	took := time.Since(begun)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("after the restart a page was answered %d %s", status, reason)
	}
	after, err := s.measure(before.visited)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("ms from start to first answer, state.db of %s MiB", number(mebi(size)))
	b.goal(goal{run: s.name, what: what, got: []string{count(took.Milliseconds())}})
	again := after.robots - before.robots
	b.goal(goal{s.name, "robots.txt requested again", []string{count(again)}, "0", again == 0})
	return nil
}

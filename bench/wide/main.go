//go:build linux

// Command wide measures crawls of very many hosts: robotsproxy beside a crawler that goes to the hosts itself, and
// beside bare goproxy.
//
//	go run ./wide                                      all runs; about 20 minutes on two processors
//	go run ./wide -runs latency,dead -hosts 1000       two runs, of fewer hosts
//	go run ./wide -runs memory -hosts 1000000
//	go run ./wide -source ~/other/robotsproxy          the proxy of another source tree
//
// The hosts are a fake web in this process: names with a DNS server of their own, on loopback addresses, by http or
// https. Some are dead, in several ways; all alive ones answer after a given time. They count connections, handshakes,
// questions and requests for robots.txt, and check the gap between each request and the end of the one before.
//
// The proxies are separate processes. They, the hosts and the crawlers share the processors of the machine. A direct
// crawl asks each host for its robots.txt once; goproxy only forwards requests for pages.
//
// The result goes to standard output as two Markdown tables: each goal, and everything that was measured.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// bench is what the flags say, and what was measured.
type bench struct {
	program            string // robotsproxy
	dir                string // for all files
	hosts, pages, many int    // in place of those of the runs; 0: theirs
	measurements       []*measurement
	goals              []goal
}

func main() {
	if dir := os.Getenv(goproxyEnv); dir != "" {
		fmt.Fprintln(os.Stderr, runGoproxy(dir))
		os.Exit(1)
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "wide:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	var b bench
	var names []string
	for _, r := range runs {
		names = append(names, r.name)
	}
	chosen := flag.String("runs", strings.Join(names, ","), "the `names` of the runs")
	source := flag.String("source", "..", "the source `tree` of robotsproxy")
	flag.IntVar(&b.hosts, "hosts", 0, "the number of hosts, in place of that of each run")
	flag.IntVar(&b.pages, "pages", 0, "pages of each host, in place of those of each run")
	flag.IntVar(&b.many, "connections", 0, "connections of the crawler, in place of those of each run")
	flag.Parse()
	wanted := strings.Split(*chosen, ",")
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			return fmt.Errorf("there is no run %q: the runs are %s", name, strings.Join(names, ", "))
		}
	}
	if b.dir, err = os.MkdirTemp("", "wide"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if b.program, err = build(*source, b.dir); err != nil {
		return err
	}
	err = b.all(wanted)
	b.report(os.Stdout)
	return err
}

// all makes the runs with these names. One that fails does not end the others.
func (b *bench) all(names []string) (err error) {
	for _, r := range runs {
		if !slices.Contains(names, r.name) {
			continue
		}
		begun := time.Now()
		failure := r.do(b)
		fmt.Fprintf(os.Stderr, "%s took %s\n", r.name, time.Since(begun).Round(time.Second))
		if failure != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", r.name, failure))
		}
	}
	return err
}

// plan returns p with the numbers of the flags.
func (b *bench) plan(p plan) plan {
	p.web.hosts, p.pages, p.connections = b.or(b.hosts, p.web.hosts), b.or(b.pages, p.pages), b.or(b.many, p.connections)
	return p
}

func (b *bench) or(flag, otherwise int) int {
	if flag > 0 {
		return flag
	}
	return otherwise
}

// three makes the same crawl through robotsproxy, without a proxy, and through goproxy.
func (b *bench) three(p plan) (proxy, direct, goproxy *measurement, err error) {
	if proxy, err = b.run(p, robotsproxySide); err != nil {
		return nil, nil, nil, err
	}
	if direct, err = b.run(p, directSide); err != nil {
		return nil, nil, nil, err
	}
	goproxy, err = b.run(p, goproxySide)
	return proxy, direct, goproxy, err
}

// measured measures a crawl of s that has ended, for the second table.
func (b *bench) measured(s *session, v *visited) (*measurement, error) {
	m, err := s.measure(v)
	if err == nil {
		b.measurements = append(b.measurements, m)
	}
	return m, err
}

func (b *bench) goal(g goal) { b.goals = append(b.goals, g) }

func (b *bench) machine() string {
	return fmt.Sprintf("%s, %s/%s, %d processors, shared by the crawler, the hosts and the proxy.", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
}

//go:build linux

// Command wide measures crawls of very many hosts: robotsproxy beside a crawler that goes to the hosts itself, and
// beside bare goproxy.
//
//	go run ./wide                                      all runs; about 20 minutes on two processors
//	go run ./wide -runs latency,dead -hosts 1000       two runs, of fewer hosts
//	go run ./wide -runs memory -hosts 1000000
//	go run ./wide -runs memory -config "robots: {cache_size: 64MiB}"
//	go run ./wide -source ~/other/robotsproxy          the proxy of another source tree
//	go run ./wide -build /tmp/before                   that, to measure it later with -proxy /tmp/before
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
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// bench has the values of the flags, and the results of the runs.
type bench struct {
	program string // robotsproxy
	config  string // further lines of its configuration
	dir     string // for all files

	hosts, pages, connections int // in place of those of the runs; 0: theirs

	measurements []*measurement
	goals        []goal
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
	only := flag.String("build", "", "build robotsproxy for -proxy into `file`, and measure nothing")
	flag.StringVar(&b.program, "proxy", "", "the `file` of a robotsproxy that -build has built")
	flag.StringVar(&b.config, "config", "", "further `lines` of its configuration")
	flag.IntVar(&b.hosts, "hosts", 0, "the number of hosts, in place of that of each run")
	flag.IntVar(&b.pages, "pages", 0, "pages of each host, in place of those of each run")
	flag.IntVar(&b.connections, "connections", 0, "connections of the crawler, in place of those of each run")
	flag.Parse()
	wanted := strings.Split(*chosen, ",")
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			return fmt.Errorf("there is no run %q; the runs are %s", name, strings.Join(names, ", "))
		}
	}
	if b.dir, err = os.MkdirTemp("", "wide"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	go b.cleanUp()
	if *only != "" {
		return build(*source, b.dir, *only)
	}
	if b.program == "" {
		b.program = filepath.Join(b.dir, "robotsproxy")
		err = build(*source, b.dir, b.program)
	} else {
		b.program, err = filepath.Abs(b.program)
	}
	if err != nil {
		return err
	}
	err = b.all(wanted)
	b.report(os.Stdout)
	return err
}

// cleanUp removes all files after an interrupt. The proxies end with this process.
func (b *bench) cleanUp() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	<-signals
	os.RemoveAll(b.dir)
	os.Exit(130)
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
	p.web.hosts = cmp.Or(b.hosts, p.web.hosts)
	p.pages = cmp.Or(b.pages, p.pages)
	p.connections = cmp.Or(b.connections, p.connections)
	return p
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

//go:build linux

package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/robotsproxy/robotsproxy/bench/internal/lab"
)

// plan is a crawl of a fake web.
type plan struct {
	name        string
	web         webOptions
	connections int
	ramp        time.Duration // see crawl
	pages       int           // of each host
	rounds      bool          // see crawl
	config      string        // further lines of robotsproxy's configuration
}

// The ways to crawl.
const (
	robotsproxySide = "robotsproxy"
	directSide      = "direct"
	goproxySide     = "goproxy"
)

// session is a fake web, and the proxy through which it is crawled.
type session struct {
	plan
	side    string
	dir     string
	web     *web
	proxy   *process      // nil for directSide
	robots  []robotsFetch // for directSide
	program string        // robotsproxy
}

// measurement has the cost of a crawl, as the proxy and the hosts counted it.
type measurement struct {
	*visited
	run, side  string
	cpu        time.Duration
	memory     int64 // the most, in bytes
	files      int
	goroutines int

	conns, shakes, questions int64 // at the hosts, and their DNS server
	robots, robotsMost       int64 // requests for a robots.txt in all, and for that of one host
	gaps, short, overlaps    int64
}

// open starts a web and a proxy.
func (b *bench) open(p plan, side string) (*session, error) {
	dir, err := os.MkdirTemp(b.dir, p.name)
	if err != nil {
		return nil, err
	}
	p.config += b.config
	w, err := newWeb(p.web)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s := &session{
		plan: p, side: side, dir: dir, web: w, robots: make([]robotsFetch, len(w.state)),
		program: b.program,
	}
	if err := s.start(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *session) start() (err error) {
	switch s.side {
	case robotsproxySide:
		s.proxy, err = startRobotsproxy(s.program, s.dir, s.web, s.config)
	case goproxySide:
		s.proxy, err = startGoproxy(s.dir, s.web)
	}
	return err
}

func (s *session) close() {
	if s.proxy != nil {
		_ = s.proxy.stop()
	}
	s.web.close()
	os.RemoveAll(s.dir)
}

// crawl visits the hosts from first to before last, from a client address.
func (s *session) crawl(first, last, connections int, from string) *visited {
	dialer := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c := &crawl{
		web: s.web, first: first, last: last, pages: s.pages, rounds: s.rounds, connections: connections, ramp: s.ramp,
	}
	c.client = func() client {
		switch {
		case s.side == directSide:
			return newDirect(s.web, s.robots)
		case s.plan.web.secure:
			return &tunnelled{web: s.web, addr: s.proxy.addr, dialer: dialer, roots: s.proxy.roots}
		default:
			return &proxied{web: s.web, addr: s.proxy.addr, dialer: dialer}
		}
	}
	return c.run()
}

// measure adds the cost to the result of a crawl that has ended.
func (s *session) measure(v *visited) (*measurement, error) {
	w := s.web
	m := &measurement{
		visited: v, run: s.name, side: s.side,
		conns: w.conns.Load(), shakes: w.shakes.Load(), questions: w.dns.questions.Load(),
		gaps: w.gaps.Load(), short: w.short.Load(), overlaps: w.overlaps.Load(),
	}
	for i := range w.state {
		h := &w.state[i]
		h.mu.Lock()
		m.robots += int64(h.robots)
		m.robotsMost = max(m.robotsMost, int64(h.robots))
		h.mu.Unlock()
	}
	if s.proxy == nil {
		return m, nil
	}
	var err, err2 error
	m.cpu, err = lab.CPU(s.proxy.cmd.Process.Pid)
	m.memory, err2 = lab.PeakMemory(s.proxy.cmd.Process.Pid)
	m.files, m.goroutines = s.proxy.seen()
	if s.side == robotsproxySide && m.questions == 0 {
		err = errors.Join(err, errNoQuestion)
	}
	return m, errors.Join(err, err2)
}

var errNoQuestion = errors.New("robotsproxy asked the DNS server of the web nothing: was it built with -build?")

// run opens a session, crawls all its hosts, and measures that.
func (b *bench) run(p plan, side string) (*measurement, error) {
	s, err := b.open(p, side)
	if err != nil {
		return nil, err
	}
	defer s.close()
	return b.measured(s, s.crawl(0, p.web.hosts, p.connections, "127.0.0.1"))
}

// per returns n for each page that was fetched.
func (m *measurement) per(n int64) float64 { return float64(n) / float64(max(m.pages, 1)) }

func (m *measurement) cpuMicros() float64 { return m.per(m.cpu.Microseconds()) }

// stateSize returns the size of state.db with its log, in bytes.
func (s *session) stateSize() (size int64) {
	files, _ := filepath.Glob(filepath.Join(s.dir, "data", "state.db*"))
	for _, name := range files {
		if info, err := os.Stat(name); err == nil {
			size += info.Size()
		}
	}
	return size
}

// three is the same crawl three times.
type three struct{ proxy, direct, goproxy *measurement }

func (b *bench) three(p plan) (m three, err error) {
	if m.proxy, err = b.run(p, robotsproxySide); err != nil {
		return m, err
	}
	if m.direct, err = b.run(p, directSide); err != nil {
		return m, err
	}
	m.goproxy, err = b.run(p, goproxySide)
	return m, err
}

func (t *three) cells(of func(m *measurement) float64) []string {
	return []string{number(of(t.proxy)), number(of(t.direct)), number(of(t.goproxy))}
}

func rate(m *measurement) float64 { return m.rate() }

func median(m *measurement) float64 { return m.millis(0.5) }

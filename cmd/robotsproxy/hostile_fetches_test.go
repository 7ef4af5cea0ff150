//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// tarpit listens on all loopback addresses, to act as many hosts, and delays its clients.
type tarpit struct {
	net.Listener
	open sync.WaitGroup
	mu   sync.Mutex
	conn map[net.Conn]bool
	seen atomic.Int64 // connections so far
}

// newTarpit starts a tarpit. It calls hold for each connection and closes the connection when hold returns.
func newTarpit(t *testing.T, hold func(net.Conn)) *tarpit {
	t.Helper()
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tarpit{Listener: l, conn: make(map[net.Conn]bool)}
	p.open.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.seen.Add(1)
			p.set(conn, true)
			p.open.Go(func() {
				hold(conn)
				conn.Close()
				p.set(conn, false)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		for conn := range p.conn {
			conn.Close()
		}
		p.mu.Unlock()
		p.open.Wait()
	})
	return p
}

func (p *tarpit) set(conn net.Conn, open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if open {
		p.conn[conn] = true
	} else {
		delete(p.conn, conn)
	}
}

// url returns a page of host number i.
func (p *tarpit) url(scheme string, i int) string {
	return fmt.Sprintf("%s://127.%d.%d.%d:%d/", scheme, 16+i/62500, i/250%250, 1+i%250, p.Addr().(*net.TCPAddr).Port)
}

// silence reads and does not answer.
func silence(conn net.Conn) { io.Copy(io.Discard, conn) }

// dripping sends head and then part every 100 ms.
func dripping(head, part string) func(net.Conn) {
	return func(conn net.Conn) {
		go io.Copy(io.Discard, conn)
		_, err := io.WriteString(conn, head)
		for ; err == nil; time.Sleep(100 * time.Millisecond) {
			_, err = io.WriteString(conn, part)
		}
	}
}

// tarpits are the ways to delay a fetch of robots.txt.
var tarpits = []struct {
	name, scheme string
	hold         func(net.Conn)
}{
	{"silent", "http", silence},
	{"header drips", "http", dripping("HTTP/1.1 200 OK\r\nX: ", "x")},
	{"body drips", "http", dripping("HTTP/1.1 200 OK\r\n\r\n", "#")},
	{"TLS is silent", "https", silence},
}

// firstVisits returns a function that visits new host number i as the innocent client.
func (s *scene) firstVisits(site *robotstest.Site) func(i int) error {
	client := &http.Client{Transport: s.transport("other")}
	return func(i int) error {
		return get(client, fmt.Sprintf("http://new-%d.example:%d/page/1", i, site.Port()))
	}
}

const visits = 20

// newHosts returns the hosts of firstVisits.
func newHosts() (names []string) {
	for i := range 2 * visits {
		names = append(names, fmt.Sprintf("new-%d.example", i))
	}
	return names
}

// ask has the hostile client ask for n hosts of p at once, and for another one after each answer, until ctx ends.
func (s *scene) ask(ctx context.Context, p *tarpit, scheme string, n int) {
	transport := s.transport("one")
	transport.MaxIdleConnsPerHost = -1
	transport.TLSClientConfig.InsecureSkipVerify = true
	client := &http.Client{Transport: transport}
	var next atomic.Int64
	for range n {
		go func() {
			for ctx.Err() == nil {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url(scheme, int(next.Add(1))), nil)
				if err != nil {
					return
				}
				if resp, err := client.Do(req); err == nil {
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}
		}()
	}
	s.eventually(func() error {
		if waiting, fetching := s.metric("robotsproxy_robots_waiting"), s.metric("robotsproxy_robots_fetching"); waiting+fetching < n {
			return fmt.Errorf("%d fetches wait and %d run, want %d", waiting, fetching, n)
		}
		return nil
	})
}

// A client that requests hosts that hang does not delay another client's first requests to new hosts, also after it
// left.
func TestHostileTarpits(t *testing.T) {
	long(t)
	const few = 9 // visits, so that the longest one counts
	for _, row := range tarpits {
		for _, n := range []int{70, 1100} {
			t.Run(fmt.Sprintf("%s/%d hosts", row.name, n), func(t *testing.T) {
				besideTarpits(t, "", row.hold, func(s *scene, visit func(int) error, p *tarpit) error {
					return s.harm(visits, visit, func(ctx context.Context) { s.ask(ctx, p, row.scheme, n) })
				})
			})
			t.Run(fmt.Sprintf("%s/%d hosts, and the client has left", row.name, n), func(t *testing.T) {
				besideTarpits(t, "", row.hold, func(s *scene, visit func(int) error, p *tarpit) error {
					return s.harm(few, visit, func(ctx context.Context) {
						ctx, leave := context.WithCancel(ctx)
						s.ask(ctx, p, row.scheme, n)
						leave()
						s.eventually(func() error {
							if active := s.metric("robotsproxy_active_requests"); active > 0 {
								return fmt.Errorf("%d requests are under way", active)
							}
							return nil
						})
					})
				})
			})
		}
		t.Run(row.name+"/70 hosts, whose fetches time out meanwhile", func(t *testing.T) {
			besideTarpits(t, "robots: {timeout: 1s}\n", row.hold, func(s *scene, visit func(int) error, p *tarpit) error {
				ask := func(i int) error {
					time.Sleep(100 * time.Millisecond) // 2 s in all
					return visit(i)
				}
				return s.harm(visits, ask, func(ctx context.Context) { s.ask(ctx, p, row.scheme, 70) })
			})
		})
	}
}

// besideTarpits runs measure in a new scene, and twice more if it fails: other programs may have used both processors.
func besideTarpits(t *testing.T, config string, hold func(net.Conn), measure func(s *scene, visit func(int) error, p *tarpit) error) {
	var err error
	for range 3 {
		s, site, p := newTarpitScene(t, config, hold)
		if err = measure(s, s.firstVisits(site), p); err == nil {
			return
		}
		t.Log(err)
		s.server.cmd.Process.Kill()
	}
	t.Error(err)
}

func newTarpitScene(t *testing.T, config string, hold func(net.Conn)) (*scene, *robotstest.Site, *tarpit) {
	site := robotstest.New(t)
	s := newScene(t, site, config, newHosts()...)
	return s, site, newTarpit(t, hold)
}

// A client that repeatedly requests a host and leaves causes one fetch per error_ttl, and uses few descriptors.
func TestHostileLeavers(t *testing.T) {
	long(t)
	const hosts, fetches = 1500, 256
	site := robotstest.New(t)
	s := newScene(t, site, fmt.Sprintf("robots: {max_fetches: %d}\n", fetches), newHosts()...)
	p := newTarpit(t, silence)
	before := s.files()
	s.unharmed(visits, s.firstVisits(site), func(context.Context) {
		err := parallel(3*hosts, func(i int) error {
			conn, err := s.dial("one")
			if err != nil {
				return err
			}
			defer conn.Close()
			fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", p.url("http", i%hosts))
			time.Sleep(10 * time.Millisecond)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("%d connections to %d hosts, %d descriptors before, %d after, %d fetches", p.seen.Load(), hosts, before, s.files(), s.metric("robotsproxy_robots_fetching"))
	if got := p.seen.Load(); got > hosts {
		t.Errorf("%d connections to %d hosts within error_ttl, want one to each at most", got, hosts)
	}
	if got := s.files() - before; got > 2*fetches+100 {
		t.Errorf("%d descriptors more are open, want about the %d of quick fetches and of those that take long at most", got, 2*fetches)
	}
}

// Files that drip at their end use memory only for those that are read concurrently.
func TestHostileBodies(t *testing.T) {
	const mostMemory = 160 << 20 // 64 bodies of 2 MiB each, and the memory of 1,100 requests
	s, site, p := newTarpitScene(t, "", dripping("HTTP/1.1 200 OK\r\n\r\n"+strings.Repeat("#", 499_000), "#"))
	visit := s.firstVisits(site)
	if err := visit(0); err != nil {
		t.Fatal(err)
	}
	before, most := s.memory(), 0
	ask := func(i int) error {
		most = max(most, s.memory())
		return visit(i)
	}
	s.unharmed(visits, ask, func(ctx context.Context) { s.ask(ctx, p, "http", 1100) })
	t.Logf("%d MiB before, %d MiB at most", before>>20, most>>20)
	if used := most - before; used > mostMemory && !raceEnabled {
		t.Errorf("the fetches took %d MiB, want %d at most", used>>20, mostMemory>>20)
	}
}

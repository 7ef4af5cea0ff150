//go:build linux

package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/robotsproxy/robotsproxy/bench/internal/lab"
)

// webOptions describe a fake web.
type webOptions struct {
	hosts      int           // their numbers begin at 0
	dead       shares        // of these
	spare      int           // further hosts, all alive
	latency    time.Duration // before each answer
	delay      time.Duration // the Crawl-delay of every host
	robotsSize int           // in bytes, about
	shared     float64       // share of the hosts that have the same robots.txt as others
	secure     bool          // https in place of http
}

// web is a fake web: all its hosts, on addresses in 127.0.0.0/8 with one port, and their DNS server.
type web struct {
	webOptions
	state    []host // by number
	begun    time.Time
	port     int
	dns      *dnsServer
	ca       *lab.Authority
	roots    *x509.CertPool // with ca alone
	tls      *tls.Config
	open     []io.Closer // listeners
	backlog  []net.Conn  // that fill the queue of the silent address
	page     []byte
	failure  []byte
	conns    atomic.Int64 // accepted
	shakes   atomic.Int64 // TLS handshakes done
	gaps     atomic.Int64
	short    atomic.Int64
	overlaps atomic.Int64
	running  sync.WaitGroup // accept loops
}

// Addresses of the web.
const (
	living        = 16 // 127.1.0.1 to 127.1.0.16, so that the ports of a client last for many connections
	refusingAddr  = "127.1.1.1"
	silentAddr    = "127.1.1.2"
	livingAddress = "127.1.0.%d"
)

// newWeb starts a fake web.
func newWeb(o webOptions) (*web, error) {
	w := &web{webOptions: o, state: make([]host, o.hosts+o.spare), begun: time.Now()}
	w.page = answer("200 OK", "text/html", "<!doctype html><title>Page</title>\n"+strings.Repeat("<p>Some text.\n", 70))
	w.failure = answer("503 Service Unavailable", "text/plain", "This host fails.\n")
	err := errors.Join(w.certify(), w.listenSomewhere(), w.listenSilently())
	if err == nil {
		w.dns, err = newDNS(w.lookUp)
	}
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *web) close() {
	for _, l := range w.open {
		l.Close()
	}
	for _, c := range w.backlog {
		c.Close()
	}
	if w.dns != nil {
		w.dns.close()
	}
	w.running.Wait()
}

func (w *web) certify() (err error) {
	if w.ca, err = lab.NewAuthority("bench/wide"); err != nil {
		return err
	}
	w.roots = w.ca.Pool()
	leaf, err := w.ca.Leaf("*" + domain)
	if err == nil {
		w.tls = &tls.Config{Certificates: []tls.Certificate{*leaf}, NextProtos: []string{"http/1.1"}}
	}
	return err
}

// listenSomewhere listens on the addresses of the living at a port that is free on all of them.
func (w *web) listenSomewhere() error {
	var err error
	for range 10 {
		if err = w.listenAll(); err == nil {
			return nil
		}
		for _, l := range w.open {
			l.Close()
		}
		w.open, w.port = nil, 0
	}
	return err
}

func (w *web) listenAll() error {
	var listeners []net.Listener
	for i := range living {
		l, err := net.Listen("tcp", fmt.Sprintf(livingAddress+":%d", i+1, w.port))
		if err != nil {
			return err
		}
		w.open = append(w.open, l)
		listeners = append(listeners, l)
		w.port = l.Addr().(*net.TCPAddr).Port
	}
	for _, l := range listeners {
		w.running.Go(func() { w.accept(l) })
	}
	return nil
}

// listenSilently listens on an address and fills its queue of connections, so that the system drops further ones.
func (w *web) listenSilently() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	w.open = append(w.open, closer(fd))
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: w.port, Addr: [4]byte{127, 1, 1, 2}}); err != nil {
		return fmt.Errorf("bind %s:%d: %w", silentAddr, w.port, err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		return err
	}
	for range 10 {
		c, err := net.DialTimeout("tcp", fmt.Sprintf("%s:%d", silentAddr, w.port), 100*time.Millisecond)
		if err != nil {
			return nil // it is full
		}
		w.backlog = append(w.backlog, c)
	}
	return fmt.Errorf("the queue of %s:%d does not fill", silentAddr, w.port)
}

type closer int

func (c closer) Close() error { return unix.Close(int(c)) }

// lookUp returns the address of a host, and false if the DNS server is not to know it.
func (w *web) lookUp(name string) (addr string, ok bool) {
	i, ok := hostNumber(name)
	if !ok || i < 0 || i >= len(w.state) {
		return "", false
	}
	switch w.kindOf(i) {
	case unnamed:
		return "", false
	case refused:
		return refusingAddr, true
	case silent:
		return silentAddr, true
	default:
		return fmt.Sprintf(livingAddress, i%living+1), true
	}
}

func (w *web) kindOf(i int) kind {
	if i >= w.hosts {
		return alive
	}
	return w.dead.kindOf(i)
}

// authority returns the host and port of a host.
func (w *web) authority(i int) string { return fmt.Sprintf("%s:%d", hostName(i), w.port) }

func (w *web) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(10 * time.Millisecond) // too many descriptors
			continue
		}
		w.conns.Add(1)
		go w.serve(c.(*net.TCPConn))
	}
}

// serve answers the requests of one connection.
func (w *web) serve(raw *net.TCPConn) {
	defer raw.Close()
	var c net.Conn = raw
	if w.secure {
		secure := tls.Server(raw, w.tls)
		if secure.Handshake() != nil {
			return
		}
		w.shakes.Add(1)
		c = secure
	}
	r := bufio.NewReaderSize(c, 2<<10)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		i, ok := hostNumber(req.Host)
		if !ok || i >= len(w.state) || !w.answer(c, raw, i, req.URL.Path) {
			return
		}
	}
}

// answer answers a request for path of host i. It returns false if the connection is to be closed.
func (w *web) answer(c net.Conn, raw *net.TCPConn, i int, path string) bool {
	switch w.kindOf(i) {
	case hanging:
		_, _ = io.Copy(io.Discard, c) // until the client leaves
		return false
	case reset:
		_ = raw.SetLinger(0)
		return false
	case failing:
		return w.write(c, w.failure)
	}
	if path == "/robots.txt" {
		h := &w.state[i]
		h.mu.Lock()
		h.robots++
		h.mu.Unlock()
		time.Sleep(w.latency)
		return w.write(c, answer("200 OK", "text/plain", w.robotsTxt(i)))
	}
	return w.answerPage(c, &w.state[i])
}

// answerPage counts the gap between this request and the end of the one before, which is taken before the answer is
// written: that is before the client can know of it.
func (w *web) answerPage(c net.Conn, h *host) bool {
	gap, first, overlap := h.begin(int64(time.Since(w.begun)))
	switch {
	case w.delay == 0 || first:
	case overlap:
		w.overlaps.Add(1)
	default:
		w.gaps.Add(1)
		if gap < w.delay {
			w.short.Add(1)
		}
	}
	time.Sleep(w.latency)
	h.end(int64(time.Since(w.begun)))
	return w.write(c, w.page)
}

func (w *web) write(c net.Conn, b []byte) bool {
	_, err := c.Write(b)
	return err == nil
}

func answer(status, kind, body string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
		status, kind, len(body), body)
}

// Package robotstest runs a whole web for tests: one site that answers for every host name, over HTTP and HTTPS.
//
//	site := robotstest.New(t) // closed when the test ends
//	site.SetRobots("a.example", robotstest.Robots{Body: "User-agent: *\nDisallow: /private\nCrawl-delay: 0.1\n"})
//	crawl(site) // by dialling 127.0.0.1:site.Port(), or with site.Transport()
//	if _, _, found := site.Overlap("a.example"); found {
//		t.Error("two requests at once")
//	}
//
// Start opens two listeners on 127.0.0.1 with free ports. Both serve the same hosts, told apart by the Host field; the
// second speaks TLS, HTTP/1.1 and HTTP/2, with a leaf for whatever name the client asks for, signed by a CA that is as
// old as the site (CAFile, CAPool). What arrives is recorded before anything answers it (Requests, Paths, Gaps, Overlap).
//
// A host's robots.txt is 404 until SetRobots. Every other path of every host is answered by the built-in pages, unless
// SetPage says otherwise:
//
//	/                     HTML with links to all of Pages and to some of Private
//	/page/K /private/K    HTML with links to others of them
//	/bytes/N              Bytes(N), with Content-Length
//	/stream/N             N lines, each flushed, in chunks          ?every=DURATION
//	/sse /ndjson          five events or lines, each flushed        ?n=N&every=DURATION
//	/drip                 ten bytes with Content-Length, one by one ?n=N&every=DURATION
//	/endless              a body without end
//	/status/CODE          that status, from 200 on                  ?retry_after=VALUE
//	/delay/DURATION       200 after that time
//	/redirect?to=URL      302 to it                                 &code=CODE
//	/echo                 the request, as JSON: see Echo
//	/ws                   WebSocket: every message comes back
//	/gzip                 a body with Content-Encoding: gzip, whatever the client accepts
//	/cookies              two Set-Cookie fields, first=1 and then second=2
//	/trailers             a body followed by the trailer field Checksum
//	/hints                103 with a Link, then 200
//	/truncate             a chunked body whose connection is closed before its end
//	/truncate-length      a body that ends before its Content-Length
//	/reset                the connection is reset before a status line
//	/garbage              bytes that are not HTTP (HTTP/1.1 only)
//
// A name that begins with "expired.", "wrong-name." or "untrusted." gets a leaf with that fault.
//
// Bodies depend on nothing but the target, so two fetches of one page can be compared byte for byte. The site resolves no
// names and keeps no rules: whoever asks for a disallowed page gets it, and the record tells.
package robotstest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
)

// Options are those of Start. The zero value is what New uses.
type Options struct {
	Pages      int  // how many of /page/K and of /private/K each host has. If zero, 10.
	Unrecorded bool // If true, requests are not recorded: for benchmarks, whose requests would fill the memory.
}

// Site is a running site. Its methods may be called at any time, by several goroutines at once.
type Site struct {
	pages    int
	ca       *authority
	caFile   string
	plain    net.Listener
	secure   net.Listener
	server   http.Server
	stop     context.CancelFunc
	running  sync.WaitGroup // the two accept loops and all handlers
	recorder *recorder      // nil where nothing is recorded
	http1    atomic.Bool    // TLS offers no HTTP/2

	mu       sync.RWMutex // guards what follows
	handlers map[place]http.HandlerFunc
	closed   bool
}

// New starts a site with the zero Options and closes it when the test ends.
func New(tb testing.TB) *Site {
	tb.Helper()
	site, err := Start(Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(site.Close)
	return site
}

// Start starts a site. The caller must Close it.
func Start(opts Options) (*Site, error) {
	if opts.Pages < 0 {
		return nil, fmt.Errorf("robotstest: %d pages: the number is negative", opts.Pages)
	}
	s := &Site{pages: opts.Pages, handlers: map[place]http.HandlerFunc{}}
	if s.pages == 0 {
		s.pages = 10
	}
	if !opts.Unrecorded {
		s.recorder = &recorder{}
	}
	if err := s.open(); err != nil {
		s.release()
		return nil, fmt.Errorf("robotstest: %w", err)
	}
	s.serve()
	return s, nil
}

// open gets all that can be refused: keys, the CA's file, the listeners.
func (s *Site) open() (err error) {
	if s.ca, err = newAuthority(); err != nil {
		return err
	}
	if s.caFile, err = writeTemp(s.ca.pem()); err != nil {
		return err
	}
	if s.plain, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return err
	}
	s.secure, err = net.Listen("tcp", "127.0.0.1:0")
	return err
}

func writeTemp(data []byte) (name string, err error) {
	f, err := os.CreateTemp("", "robotstest-ca-*.pem")
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	return f.Name(), errors.Join(err, f.Close())
}

func (s *Site) serve() {
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	// The protocols are named because a Server sets up HTTP/2 once: where Serve comes before ServeTLS it would find no
	// reason to, and the TLS listener would then offer an HTTP/2 that nobody serves.
	config := &tls.Config{GetCertificate: s.ca.certificate, NextProtos: []string{"h2", "http/1.1"}}
	http1 := &tls.Config{GetCertificate: s.ca.certificate, NextProtos: []string{"http/1.1"}}
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if s.http1.Load() {
			return http1, nil
		}
		return nil, nil
	}
	s.server = http.Server{
		Handler:                      http.HandlerFunc(s.handle),
		TLSConfig:                    config,
		BaseContext:                  func(net.Listener) context.Context { return ctx },
		ErrorLog:                     log.New(io.Discard, "", 0), // faults are this site's trade
		DisableGeneralOptionsHandler: true,                       // "OPTIONS *" is recorded too
	}
	s.running.Go(func() { _ = s.server.Serve(s.plain) }) // until Close, which is the only error that it can have
	s.running.Go(func() { _ = s.server.ServeTLS(s.secure, "", "") })
}

// Close ends all connections, waits for the handlers and removes the CA's file. Handlers given to SetPage and SetRobots
// must return when their request's context ends.
func (s *Site) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	_ = s.server.Close()
	s.stop() // second, so that a handler that ends with its context has nobody left to answer
	s.running.Wait()
	s.release()
}

// HTTP1Only makes new TLS connections speak HTTP/1.1.
func (s *Site) HTTP1Only() { s.http1.Store(true) }

// enter counts a handler that begins, and refuses it once Close waits for those that have begun.
func (s *Site) enter() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return false
	}
	s.running.Add(1)
	return true
}

// release gives back what open got. Closing a listener twice is harmless, and so is removing a file that is not there.
func (s *Site) release() {
	for _, l := range []net.Listener{s.plain, s.secure} {
		if l != nil {
			_ = l.Close()
		}
	}
	if s.caFile != "" {
		_ = os.Remove(s.caFile)
	}
}

// Port returns the port of 127.0.0.1 that speaks HTTP/1.1.
func (s *Site) Port() int { return s.plain.Addr().(*net.TCPAddr).Port }

// TLSPort returns the port of 127.0.0.1 that speaks HTTP/1.1 and HTTP/2 over TLS.
func (s *Site) TLSPort() int { return s.secure.Addr().(*net.TCPAddr).Port }

// CAFile returns the path of the CA's certificate, in PEM.
func (s *Site) CAFile() string { return s.caFile }

// CAPool returns a pool that holds the CA's certificate and nothing else.
func (s *Site) CAPool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(s.ca.cert)
	return pool
}

// Transport returns a new transport for which the site is the whole web: it dials the site's ports whatever the host, for
// port 80 and for 443, and trusts its CA.
func (s *Site) Transport() *http.Transport {
	var dialer net.Dialer
	return &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			switch _, port, _ := net.SplitHostPort(addr); port {
			case "80":
				addr = s.plain.Addr().String()
			case "443":
				addr = s.secure.Addr().String()
			default:
				addr = net.JoinHostPort("127.0.0.1", port)
			}
			return dialer.DialContext(ctx, network, addr)
		},
		TLSClientConfig:   &tls.Config{RootCAs: s.CAPool()},
		ForceAttemptHTTP2: true,
	}
}

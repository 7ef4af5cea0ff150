// Package robotstest runs a web server for tests that serves every host name, over HTTP and HTTPS.
//
//	site := robotstest.New(t) // closed when the test ends
//	site.SetRobots("a.example", robotstest.Robots{Body: "User-agent: *\nDisallow: /private\nCrawl-delay: 0.1\n"})
//	crawl(site) // by dialling 127.0.0.1:site.Port(), or with site.Transport()
//	if _, _, found := site.Overlap("a.example"); found {
//		t.Error("two requests at once")
//	}
//
// Start opens two listeners on free ports of 127.0.0.1. Both serve the same hosts, selected by the Host field. The
// second one uses TLS, with HTTP/1.1 and HTTP/2. It has a leaf for any name that the client asks for, signed by a CA
// that is made with the site (CAFile, CAPool). Requests are recorded before they are answered (Requests, Paths, Gaps,
// Overlap).
//
// The robots.txt of a host is 404 until SetRobots. All other paths of all hosts have the built-in pages, unless SetPage
// replaces them:
//
//	/                     HTML with links to all of Pages and to some of Private
//	/page/K /private/K    HTML with links to others of them
//	/bytes/N              Bytes(N), with Content-Length
//	/stream/N             N lines, each flushed, in chunks          ?every=DURATION
//	/sse /ndjson          five events or lines, each flushed        ?n=N&every=DURATION
//	/drip                 ten bytes with Content-Length, one by one ?n=N&every=DURATION
//	/endless              an infinite body
//	/status/CODE          that status, from 200 on                  ?retry_after=VALUE
//	/delay/DURATION       200 after that time
//	/redirect?to=URL      302 to it                                 &code=CODE
//	/echo                 the request, as JSON: see Echo
//	/ws                   WebSocket that echoes each message
//	/gzip                 a body with Content-Encoding: gzip, regardless of Accept-Encoding
//	/cookies              two Set-Cookie fields, first=1 and then second=2
//	/trailers             a body followed by the trailer field Checksum
//	/hints                103 with a Link, then 200
//	/truncate             a chunked body; the connection is closed before its end
//	/truncate-length      a body that ends before its Content-Length
//	/reset                the connection is reset before a status line
//	/garbage              bytes that are not HTTP (HTTP/1.1 only)
//
// A host name that begins with "expired.", "wrong-name." or "untrusted." gets a leaf with that fault.
//
// Bodies depend only on the target, so two responses for one page can be compared byte for byte. The site resolves no
// names and enforces no rules: a client that asks for a disallowed page gets it, and the record shows the request.
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

// Options configure Start. New uses the zero value.
type Options struct {
	Pages      int  // number of /page/K and of /private/K; if zero, 10
	Unrecorded bool // do not record requests, which would fill the memory in a benchmark
}

// Site is a running site. It is safe for concurrent use.
type Site struct {
	pages    int
	ca       *authority
	caFile   string
	plain    net.Listener
	secure   net.Listener
	server   http.Server
	stop     context.CancelFunc
	running  sync.WaitGroup // the two accept loops and all handlers
	recorder *recorder      // nil if requests are not recorded
	http1    atomic.Bool    // do not offer HTTP/2 over TLS

	mu       sync.RWMutex // guards the fields below
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

// open makes everything that can fail: keys, the CA's file, the listeners.
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
	// NextProtos is set because a Server configures HTTP/2 once. If Serve comes before ServeTLS it does not configure
	// HTTP/2, and the TLS listener would then offer HTTP/2 without serving it.
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
		ErrorLog:                     log.New(io.Discard, "", 0), // errors are expected
		DisableGeneralOptionsHandler: true,                       // record "OPTIONS *" too
	}
	s.running.Go(func() { _ = s.server.Serve(s.plain) }) // returns only after Close
	s.running.Go(func() { _ = s.server.ServeTLS(s.secure, "", "") })
}

// Close ends all connections, waits for the handlers and removes the CA's file. Handlers of SetPage and SetRobots must
// return when the request's context ends.
func (s *Site) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	_ = s.server.Close()
	s.stop() // after Close, so that a handler that returns now has no client to answer
	s.running.Wait()
	s.release()
}

// HTTP1Only makes the site offer only HTTP/1.1 on new TLS connections.
func (s *Site) HTTP1Only() { s.http1.Store(true) }

// enter counts a handler that begins. It reports false if Close already waits for the handlers.
func (s *Site) enter() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return false
	}
	s.running.Add(1)
	return true
}

// release undoes open. Closing a listener twice and removing a missing file are harmless.
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

// Port returns the port of 127.0.0.1 for HTTP/1.1.
func (s *Site) Port() int { return s.plain.Addr().(*net.TCPAddr).Port }

// TLSPort returns the port of 127.0.0.1 for HTTP/1.1 and HTTP/2 over TLS.
func (s *Site) TLSPort() int { return s.secure.Addr().(*net.TCPAddr).Port }

// CAFile returns the path of the CA's certificate in PEM.
func (s *Site) CAFile() string { return s.caFile }

// CAPool returns a pool with only the CA's certificate.
func (s *Site) CAPool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(s.ca.cert)
	return pool
}

// Transport returns a new transport that reaches only the site: it dials the site's ports for every host, for port 80
// and 443, and trusts its CA.
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

//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"github.com/robotsproxy/robotsproxy/bench/internal/lab"
)

const (
	userAgent = "BenchBot/1.0 (+https://peers.example/bot)"
	fields    = "User-Agent: " + userAgent + "\r\nAccept: text/html,*/*;q=0.8\r\nAccept-Language: en\r\nAccept-Encoding: identity\r\n"
)

// patience is how long a client waits for a response.
const patience = 30 * time.Second

// client sends one request after another, and checks each response.
type client interface {
	get() error
	close()
}

// route is the way from clients to the origin.
type route struct {
	origin *origin
	proxy  string         // its address; empty: none
	roots  *x509.CertPool // with which the certificates inside tunnels are verified
	next   atomic.Int64   // the number of the next host, for manyHosts
}

// way makes n clients that share a route.
type way func(r *route, n int) []client

func each(n int, one func() client) []client {
	clients := make([]client, n)
	for i := range clients {
		clients[i] = one()
	}
	return clients
}

// plain sends requests for pages over a kept connection in clear.
func plain(r *route, n int) []client {
	request := r.request("localhost", pagePath)
	return each(n, func() client {
		return &http1{dial: r.dial, request: func() []byte { return request }, check: checkPage}
	})
}

// manyHosts sends each request to the next of many hosts, over a kept connection in clear.
func manyHosts(hosts int) way {
	return func(r *route, n int) []client {
		requests := make([][]byte, hosts)
		for i := range requests {
			requests[i] = r.request(hostName(i), pagePath)
		}
		return each(n, func() client {
			return &http1{dial: r.dial, request: func() []byte { return requests[int(r.next.Add(1))%hosts] }, check: checkPage}
		})
	}
}

// tunnelled sends requests for pages inside one tunnel, with HTTP/1.1.
func tunnelled(r *route, n int) []client {
	request := request(pagePath, r.origin.authority("localhost", true))
	return each(n, func() client {
		return &http1{dial: r.tunnel, request: func() []byte { return request }, check: checkPage}
	})
}

// newTunnels opens a tunnel for each request, with a full TLS handshake, and closes it after the response.
func newTunnels(r *route, n int) []client {
	return each(n, func() client { return &once{tunnelled(r, 1)[0]} })
}

// downloads requests large files in clear.
func downloads(r *route, n int) []client {
	request := r.request("localhost", downloadPath)
	return each(n, func() client {
		return &http1{dial: r.dial, request: func() []byte { return request }, check: checkDownload(r.origin.size)}
	})
}

// tunnelledDownloads requests them inside a tunnel.
func tunnelledDownloads(r *route, n int) []client {
	request := request(downloadPath, r.origin.authority("localhost", true))
	return each(n, func() client {
		return &http1{dial: r.tunnel, request: func() []byte { return request }, check: checkDownload(r.origin.size)}
	})
}

func (r *route) dial() (net.Conn, error) {
	addr := r.proxy
	if addr == "" {
		addr = r.origin.plain.Addr().String()
	}
	return net.Dial("tcp", addr)
}

func (r *route) tunnel() (net.Conn, error) {
	c, err := r.tunnelWith("http/1.1")
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (r *route) tunnelWith(protocols ...string) (*tls.Conn, error) {
	config := &tls.Config{RootCAs: r.roots, ServerName: "localhost", NextProtos: protocols}
	if r.proxy == "" {
		return tls.Dial("tcp", r.origin.secure.Addr().String(), config)
	}
	return lab.OpenTunnel(r.proxy, r.origin.authority("localhost", true), config)
}

// request returns a request in clear: in absolute-form to a proxy, else in origin-form.
func (r *route) request(host, path string) []byte {
	authority := r.origin.authority(host, false)
	if r.proxy != "" {
		path = "http://" + authority + path
	}
	return request(path, authority)
}

func request(target, authority string) []byte {
	return fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", target, authority, fields)
}

// http1 speaks HTTP/1.1. It keeps the connection as long as the other end does.
type http1 struct {
	dial    func() (net.Conn, error)
	request func() []byte
	check   func(resp *http.Response) error
	conn    net.Conn // or nil
	reader  *bufio.Reader
}

func (c *http1) get() error {
	reused := c.conn != nil
	if !reused {
		conn, err := c.dial()
		if err != nil {
			return err
		}
		c.conn, c.reader = conn, bufio.NewReader(conn)
	}
	_ = c.conn.SetDeadline(time.Now().Add(patience))
	kept, err := c.exchange()
	if !kept || err != nil {
		c.close()
	}
	if reused && errors.Is(err, errNoResponse) {
		return c.get() // over a new connection
	}
	return err
}

// errNoResponse says that a connection ended before the response. The other end may close one that is idle, and
// tinyproxy closes each after a response without saying so.
var errNoResponse = errors.New("the connection ended before the response")

func (c *http1) exchange() (kept bool, err error) {
	if _, err := c.conn.Write(c.request()); err != nil {
		return false, fmt.Errorf("%w: %w", errNoResponse, err)
	}
	if _, err := c.reader.Peek(1); err != nil {
		return false, fmt.Errorf("%w: %w", errNoResponse, err)
	}
	resp, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return false, err
	}
	return !resp.Close, errors.Join(c.check(resp), resp.Body.Close())
}

func (c *http1) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// once closes the connection of another client after each response.
type once struct{ client }

func (o *once) get() error {
	defer o.close()
	return o.client.get()
}

// perConnection is the number of requests that share an HTTP/2 connection.
const perConnection = 8

// tunnelled2 sends requests for pages inside tunnels, with HTTP/2.
func tunnelled2(r *route, n int) []client {
	url := "https://" + r.origin.authority("localhost", true) + pagePath
	var transport *http2.Transport
	i := 0
	return each(n, func() client {
		if i%perConnection == 0 {
			transport = &http2.Transport{DialTLSContext: r.tunnel2}
		}
		i++
		return newStreams(transport, url)
	})
}

func (r *route) tunnel2(context.Context, string, string, *tls.Config) (net.Conn, error) {
	c, err := r.tunnelWith("h2", "http/1.1")
	if err != nil {
		return nil, err
	}
	if protocol := c.ConnectionState().NegotiatedProtocol; protocol != "h2" {
		return nil, errors.Join(fmt.Errorf("the proxy speaks %q inside the tunnel, not h2", protocol), c.Close())
	}
	return c, nil
}

// streams sends each request as a stream of one HTTP/2 connection.
type streams struct {
	transport *http2.Transport
	request   *http.Request
}

func newStreams(transport *http2.Transport, url string) *streams {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		panic(err) // the URL is that of the origin
	}
	request.Header = http.Header{
		"User-Agent": {userAgent}, "Accept": {"text/html,*/*;q=0.8"}, "Accept-Language": {"en"}, "Accept-Encoding": {"identity"},
	}
	return &streams{transport, request}
}

func (s *streams) get() error {
	resp, err := s.transport.RoundTrip(s.request)
	if err != nil {
		return err
	}
	return errors.Join(checkPage(resp), resp.Body.Close())
}

func (s *streams) close() { s.transport.CloseIdleConnections() }

// checkPage reads a page, and reports what differs from that of the origin.
func checkPage(resp *http.Response) error {
	var body [2048]byte
	n, err := io.ReadFull(resp.Body, body[:])
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return fmt.Errorf("reading the page after %d bytes: %w", n, err)
	}
	if resp.StatusCode != http.StatusOK || !bytes.Equal(body[:n], pageBody) {
		return fmt.Errorf("the page was answered %d with %d bytes: %.200q", resp.StatusCode, n, body[:n])
	}
	return nil
}

// checkDownload returns a function that reads a file of a size.
func checkDownload(size int64) func(resp *http.Response) error {
	return func(resp *http.Response) error {
		n, err := io.CopyBuffer(onlyWriter{}, resp.Body, make([]byte, 256<<10))
		if err == nil && (resp.StatusCode != http.StatusOK || n != size) {
			err = fmt.Errorf("the download was answered %d with %d bytes, not 200 with %d", resp.StatusCode, n, size)
		}
		return err
	}
}

// onlyWriter drops what is written. It is not io.Discard, which would read into a buffer of its own, of 8 KiB.
type onlyWriter struct{}

func (onlyWriter) Write(b []byte) (int, error) { return len(b), nil }

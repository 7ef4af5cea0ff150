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
	"regexp"
	"sync"
	"time"
)

const userAgent = "WideBot/1.0 (+https://wide.example/bot)"

// patience is how long a crawler waits for a step of its own: to connect, and for an answer.
const patience = 10 * time.Second

// proxyPatience is the same for an answer of a proxy. It is longer than pacing.max_wait.
const proxyPatience = 4 * time.Minute

// client is a crawler that has one request under way at a time.
type client interface {
	// get gets a page of a host. reason says why a proxy did not pass the request on.
	get(host int, path string) (status int, reason string, err error)
	close()
}

// conn is a connection that speaks HTTP/1.1.
type conn struct {
	net.Conn
	r *bufio.Reader
}

func newConn(c net.Conn) *conn { return &conn{c, bufio.NewReaderSize(c, 4<<10)} }

func send(c net.Conn, method, target, authority string) error {
	_, err := fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\n\r\n", method, target, authority, userAgent)
	return err
}

// get sends a request and reads the whole answer.
func (c *conn) get(target, authority string, within time.Duration) (status int, reason string, err error) {
	_ = c.SetDeadline(time.Now().Add(within))
	if err := send(c, "GET", target, authority); err != nil {
		return 0, "", err
	}
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return 0, "", err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if resp.Close {
		err = errors.Join(err, errClosing)
	}
	return resp.StatusCode, refusalOf(resp), err
}

var proxyError = regexp.MustCompile(`error=(\w+)`)

// refusalOf returns the reason of a proxy's own response, with the cause of RFC 9209 if there is one. It is empty for a
// response of an origin.
func refusalOf(resp *http.Response) string {
	reason := resp.Header.Get("Robotsproxy-Reason")
	if m := proxyError.FindStringSubmatch(resp.Header.Get("Proxy-Status")); m != nil && reason != "overload" {
		reason += " " + m[1]
	}
	return reason
}

// errClosing says that the other end closes a connection after an answer, which is whole.
var errClosing = errors.New("the connection is not kept")

// proxied sends its requests in clear over one connection to a proxy.
type proxied struct {
	web    *web
	addr   string
	dialer net.Dialer
	conn   *conn
}

func (p *proxied) get(host int, path string) (status int, reason string, err error) {
	if p.conn == nil {
		c, err := p.dialer.Dial("tcp", p.addr)
		if err != nil {
			return 0, "", err
		}
		p.conn = newConn(c)
	}
	authority := p.web.authority(host)
	status, reason, err = p.conn.get("http://"+authority+path, authority, proxyPatience)
	if err != nil {
		p.close()
	}
	if errors.Is(err, errClosing) {
		err = nil
	}
	return status, reason, err
}

func (p *proxied) close() {
	if p.conn != nil {
		p.conn.Close()
		p.conn = nil
	}
}

// tunnelled opens a tunnel through a proxy for each request, with a full TLS handshake.
type tunnelled struct {
	web    *web
	addr   string
	dialer net.Dialer
	roots  *x509.CertPool // the proxy's CA
}

func (t *tunnelled) get(host int, path string) (status int, reason string, err error) {
	c, err := t.dialer.Dial("tcp", t.addr)
	if err != nil {
		return 0, "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(proxyPatience))
	authority := t.web.authority(host)
	if err := send(c, "CONNECT", authority, authority); err != nil {
		return 0, "", err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return 0, "", err
	}
	if resp.StatusCode != http.StatusOK {
		return resp.StatusCode, refusalOf(resp), nil
	}
	secure := newConn(tls.Client(c, &tls.Config{RootCAs: t.roots, ServerName: hostName(host)}))
	status, reason, err = secure.get(path, authority, proxyPatience)
	if errors.Is(err, errClosing) {
		err = nil
	}
	return status, reason, err
}

func (t *tunnelled) close() {}

// direct goes to the hosts without a proxy. It fetches the robots.txt of a host before the first page, and no page if
// that fails. Between two pages of one host it keeps the connection.
type direct struct {
	web      *web
	resolver *net.Resolver
	robots   []robotsFetch // of each host, for all clients together
	host     int
	conn     *conn // to host, or nil
}

// robotsFetch is the one request for the robots.txt of a host.
type robotsFetch struct {
	once   sync.Once
	status int
	err    error
}

var errDead = errors.New("the host has no robots.txt")

func newDirect(w *web, robots []robotsFetch) *direct {
	return &direct{web: w, robots: robots, resolver: newResolver(w.dns.addr())}
}

func (d *direct) get(host int, path string) (status int, reason string, err error) {
	if host != d.host {
		d.close()
	}
	d.host = host
	robots := &d.robots[host]
	robots.once.Do(func() { robots.status, robots.err = d.fetch("/robots.txt") })
	if robots.err != nil || robots.status != http.StatusOK {
		return robots.status, "", errors.Join(errDead, robots.err)
	}
	status, err = d.fetch(path)
	return status, "", err
}

func (d *direct) fetch(path string) (status int, err error) {
	if d.conn == nil {
		if err := d.dial(); err != nil {
			return 0, err
		}
	}
	status, _, err = d.conn.get(path, d.web.authority(d.host), patience)
	if err != nil {
		d.close()
	}
	return status, err
}

func (d *direct) dial() error {
	dialer := net.Dialer{Timeout: patience, Resolver: d.resolver}
	c, err := dialer.Dial("tcp", d.web.authority(d.host))
	if err != nil {
		return err
	}
	if d.web.secure {
		c = tls.Client(c, &tls.Config{RootCAs: d.web.roots, ServerName: hostName(d.host)})
	}
	d.conn = newConn(c)
	return nil
}

func (d *direct) close() {
	if d.conn != nil {
		d.conn.Close()
		d.conn = nil
	}
}

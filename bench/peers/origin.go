//go:build linux

package main

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync/atomic"

	"github.com/robotsproxy/robotsproxy/bench/internal/lab"
)

// domain is the domain of the many hosts; see hostName.
const domain = ".peers.example"

func hostName(i int) string { return fmt.Sprintf("h%d%s", i, domain) }

// origin is all sites: localhost, which every proxy can resolve, and the hosts of domain. It reads no header fields and
// writes bytes that are made once, so that it costs as little as can be. It speaks HTTP/1.1 alone, since some of the
// proxies speak nothing else to origins.
type origin struct {
	ca            *lab.Authority
	plain, secure net.Listener
	robots, page  []byte
	size          int64        // of a download
	fetches       atomic.Int64 // of robots.txt
}

func newOrigin(size int64) (*origin, error) {
	ca, err := lab.NewAuthority("bench/peers")
	if err != nil {
		return nil, err
	}
	leaf, err := ca.Leaf("localhost", "*"+domain)
	if err != nil {
		return nil, err
	}
	o := &origin{ca: ca, size: size, robots: response("text/plain", []byte(robotsTxt())), page: response("text/html", pageBody)}
	if o.plain, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		o.plain.Close()
		return nil, err
	}
	o.secure = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{*leaf}, NextProtos: []string{"http/1.1"}})
	go o.accept(o.plain)
	go o.accept(o.secure)
	return o, nil
}

func (o *origin) close() {
	o.plain.Close()
	o.secure.Close()
}

// listener returns the listener for https or for http.
func (o *origin) listener(secure bool) net.Listener {
	if secure {
		return o.secure
	}
	return o.plain
}

// authority returns the authority of a host of this origin.
func (o *origin) authority(host string, secure bool) string {
	return fmt.Sprintf("%s:%d", host, o.listener(secure).Addr().(*net.TCPAddr).Port)
}

func (o *origin) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // closed
		}
		go o.serve(c)
	}
}

var endOfHeader = []byte("\r\n\r\n")

// serve answers requests without a body, one after the other.
func (o *origin) serve(c net.Conn) {
	defer c.Close()
	buf, n := make([]byte, 4<<10), 0
	for n < len(buf) {
		read, err := c.Read(buf[n:])
		if err != nil {
			return
		}
		if n += read; !bytes.HasSuffix(buf[:n], endOfHeader) {
			continue
		}
		if o.answer(c, buf[:n]) != nil {
			return
		}
		n = 0
	}
}

func (o *origin) answer(c net.Conn, request []byte) error {
	_, target, _ := bytes.Cut(request, []byte(" "))
	switch {
	case bytes.HasPrefix(target, []byte(pagePath)):
		_, err := c.Write(o.page)
		return err
	case bytes.HasPrefix(target, []byte("/robots.txt")):
		o.fetches.Add(1)
		_, err := c.Write(o.robots)
		return err
	case bytes.HasPrefix(target, []byte(downloadPath)):
		return o.writeDownload(c)
	default:
		_, err := c.Write([]byte("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"))
		return err
	}
}

const (
	pagePath     = "/page"
	downloadPath = "/download"
)

var (
	pageBody = []byte(strings.Repeat("<p>Text.\n", 113) + "<p>End.") // 1 KiB
	chunk    = make([]byte, 256<<10)
)

func (o *origin) writeDownload(c net.Conn) error {
	if _, err := fmt.Fprintf(c, header, "application/octet-stream", o.size); err != nil {
		return err
	}
	for left := o.size; left > 0; left -= int64(len(chunk)) {
		if _, err := c.Write(chunk[:min(left, int64(len(chunk)))]); err != nil {
			return err
		}
	}
	return nil
}

const header = "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"

func response(kind string, body []byte) []byte {
	return append(fmt.Appendf(nil, header, kind, len(body)), body...)
}

// robotsTxt has 25 rules, of which none disallows pagePath.
func robotsTxt() string {
	var b strings.Builder
	b.WriteString("User-agent: *\nDisallow: /private\n")
	for i := range 12 {
		fmt.Fprintf(&b, "Disallow: /search/%d/*?sort=\nAllow: /basket/%d/public\n", i, i)
	}
	return b.String()
}

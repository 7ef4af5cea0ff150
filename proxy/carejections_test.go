package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
)

// lockedLog may be written and read at the same time.
type lockedLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedLog) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), s)
}

// Each rejection of the CA is counted and recorded, and the first of a client and host is logged with the remedy.
func TestCARejections(t *testing.T) {
	nobody := &tls.Config{ServerName: "a.example", RootCAs: x509.NewCertPool()}
	old := nobody.Clone()
	old.MaxVersion = tls.VersionTLS12
	for name, leave := range map[string]func(net.Conn) error{
		"an alert in TLS 1.3": func(c net.Conn) error { return tls.Client(c, nobody).Handshake() },
		"an alert in TLS 1.2": func(c net.Conn) error { return tls.Client(c, old).Handshake() },
		"an alert in clear":   alertInClear,
	} {
		t.Run(name, func(t *testing.T) {
			log := &lockedLog{}
			r := newRig(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
			for i := range 3 {
				_, conn, _ := r.connect(443, "", "")
				if err := leave(conn); err == nil {
					t.Fatal("the client trusts us")
				}
				conn.Close()
				rec := r.last(i + 1)
				if rec.Decision != policy.Error || rec.Via != audit.Tunnel || rec.Host != "a.example" || !strings.Contains(rec.Error, "does not trust the CA") {
					t.Errorf("record: %+v", rec)
				}
			}
			if n := log.count("level=WARN"); n != 1 || log.count("intercept.tunnel_hosts") != 1 || log.count("host=a.example") != 1 {
				t.Errorf("%d warnings: %s", n, log.b.String())
			}
			if n := r.server.Distrusted(); n != 3 {
				t.Errorf("%d are counted, want 3", n)
			}
		})
	}
}

var errSeen = fmt.Errorf("the certificate was seen")

// alertInClear answers the certificate in TLS 1.3 as OpenSSL does: with an unencrypted alert unknown_ca (48).
func alertInClear(c net.Conn) error {
	return tls.Client(c, &tls.Config{
		ServerName: "a.example", InsecureSkipVerify: true,
		VerifyPeerCertificate: func([][]byte, [][]*x509.Certificate) error {
			c.Write([]byte{21, 3, 3, 0, 2, 2, 48})
			c.(*net.TCPConn).CloseWrite()
			io.Copy(io.Discard, c)
			return errSeen
		},
	}).Handshake()
}

// Other failed handshakes are not counted as rejections of the CA.
func TestOtherEndsOfAHandshake(t *testing.T) {
	log := &lockedLog{}
	r := newRig(t, func(o *Options) {
		o.Logger, o.HeaderTimeout = slog.New(slog.NewTextHandler(log, nil)), time.Second
	})
	r.get(r.client(false), r.url("https", "/page/1"))
	for name, do := range map[string]func(net.Conn){
		"nonsense":            func(c net.Conn) { io.WriteString(c, "\x16\x03\x01\x00\x04abcd") },
		"gone before the key": func(c net.Conn) { io.WriteString(c, "\x16"); c.Close() },
		"an old version": func(c net.Conn) {
			tls.Client(c, &tls.Config{ServerName: "a.example", MaxVersion: tls.VersionTLS11}).Handshake()
		},
		"another host's name":  func(c net.Conn) { tls.Client(c, &tls.Config{ServerName: "b.example", RootCAs: r.ca}).Handshake() },
		"silence behind it":    func(c net.Conn) { tls.Client(c, &tls.Config{ServerName: "a.example", RootCAs: r.ca}).Handshake() },
		"silence in its midst": func(c net.Conn) { io.WriteString(c, "\x16\x03\x01\x02\x00\x01") },
	} {
		_, conn, in := r.connect(443, "", "")
		do(conn)
		io.Copy(io.Discard, in)
		conn.Close()
		if n := log.count("level=WARN"); n != 0 || r.server.Distrusted() != 0 {
			t.Fatalf("%s: %d warnings, %d counted: %s", name, n, r.server.Distrusted(), log.b.String())
		}
	}
}

// The log has at most maxLines lines for one client in an hour, and one for each host. A client at this bound neither
// repeats nor suppresses a line for another.
func TestCARejectionsAreBoundedForEachClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newCARejections(slog.New(slog.DiscardHandler))
		if !d.due("other", "a.example") {
			t.Fatal("the first line is not logged")
		}
		flood := func(begin int) (lines int) {
			for i := range 5000 {
				if d.due("one", fmt.Sprint(begin+i)) {
					lines++
				}
			}
			return lines
		}
		for hour := range 3 {
			if n := flood(hour * 5000); n != maxLines {
				t.Errorf("hour %d: %d lines about one client, want %d", hour, n, maxLines)
			}
			time.Sleep(time.Hour)
		}
		if d.due("one", "12") || d.due("other", "a.example") || !d.due("other", "b.example") {
			t.Error("a line is repeated, or one about another host is missing")
		}
		for range 10 {
			flood(rand.IntN(1 << 30))
			time.Sleep(time.Hour)
		}
		if n := len(d.clients["one"].hosts); n > maxHosts {
			t.Errorf("%d hosts of one client are remembered", n)
		}
		for i := range 3 * maxRejecting {
			if client := fmt.Sprint(i); !d.due(client, "a.example") || d.due(client, "a.example") {
				t.Fatalf("there is not one line about client %d", i)
			}
		}
		if len(d.clients) > maxRejecting {
			t.Errorf("%d clients are remembered", len(d.clients))
		}
	})
}

// A client that rejects the CA at many hosts gets a bounded number of lines in the log.
func TestCARejectionsAtManyHosts(t *testing.T) {
	log := &lockedLog{}
	r := newRig(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	const hosts = maxLines + 10
	for i := range hosts {
		conn := r.raw(fmt.Sprintf("CONNECT h%d.example:443 HTTP/1.1\r\nHost: h%d.example:443\r\n\r\n", i, i))
		if _, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: "CONNECT"}); err != nil {
			t.Fatal(err)
		}
		if err := tls.Client(conn, &tls.Config{ServerName: fmt.Sprintf("h%d.example", i), RootCAs: x509.NewCertPool()}).Handshake(); err == nil {
			t.Fatal("the client trusts us")
		}
		conn.Close()
	}
	r.eventually("the handshakes", func() bool { return r.server.Distrusted() == hosts })
	if n := log.count("level=WARN"); n != maxLines {
		t.Errorf("%d lines, want %d", n, maxLines)
	}
}

package proxy

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
)

// lockedLog is written and read at once.
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

// The operator is told once of a client that does not trust our CA, and of the remedy; each case is counted and recorded.
func TestClientsThatDoNotTrustUs(t *testing.T) {
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

// What is no distrust is not told as such.
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

// The memory of who was told about is bounded.
func TestDistrustForgets(t *testing.T) {
	d := newDistrust(slog.New(slog.DiscardHandler))
	for i := range 3 * maxTold {
		if key := fmt.Sprint(i); !d.first(key) || d.first(key) {
			t.Fatalf("client %d is not told about once", i)
		}
	}
	if len(d.told) > maxTold {
		t.Errorf("%d are remembered", len(d.told))
	}
}

package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/auth"
	"github.com/robotsproxy/robotsproxy/internal/http1"
	"github.com/robotsproxy/robotsproxy/policy"
)

// handshakeFront returns c after its TLS handshake. The front server could do the handshake, but http1 needs a
// connection whose handshake is complete, and the operator a word about certificates that are refused.
func (s *Server) handshakeFront(c net.Conn) (net.Conn, bool) {
	o := s.settings.Load()
	secure := tls.Server(c, o.TLS)
	err := c.SetDeadline(time.Now().Add(o.HeaderTimeout))
	if err == nil {
		err = secure.Handshake()
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err == nil {
		return secure, true
	}
	s.refuseHandshake(c, err)
	http1.Linger(c) // the client may have sent a request after its certificate; a reset would hide the alert
	c.Close()
	return nil, false
}

// refuseHandshake records a handshake that failed because of the client's certificate, and answers a client that speaks
// HTTP without TLS. Other bytes get the alert of crypto/tls.
func (s *Server) refuseHandshake(c net.Conn, err error) {
	var wrong *tls.CertificateVerificationError
	var clear tls.RecordHeaderError
	switch {
	case errors.As(err, &wrong):
		s.warnConn(c, "a client's certificate is refused", wrong.Err)
		err = fmt.Errorf("the client's certificate: %w", wrong.Err)
		s.refuseConn(c, nil, nil, &refusal{Reason: policy.ReasonAuth, Err: err})
	case errors.As(err, &clear) && clear.Conn != nil:
		detail := "This proxy speaks TLS to its clients: begin its URL with https://."
		s.refuseConn(c, nil, c, &refusal{Reason: policy.ReasonBadRequest, Detail: detail, Err: err})
	default:
		s.log.Debug("a TLS handshake with a client failed", "client_addr", addrString(c.RemoteAddr()), "err", err)
	}
}

type subjectKey struct{}

// frontContext adds the subject of the client's certificate to the contexts of the requests on c.
func frontContext(ctx context.Context, c net.Conn) context.Context {
	secure, ok := c.(interface{ ConnectionState() tls.ConnectionState })
	if !ok {
		return ctx
	}
	return context.WithValue(ctx, subjectKey{}, auth.Subject(secure.ConnectionState()))
}

// subjectOf returns the subject of the certificate of the client of a request outside tunnels; empty without one.
func subjectOf(ctx context.Context) string {
	subject, _ := ctx.Value(subjectKey{}).(string)
	return subject
}

// faultLog logs faults of clients: one line a minute for each network and fault, and at most maxFaultLines a
// minute in all. The zero value is ready to use.
type faultLog struct {
	mu      sync.Mutex // guards the fields below
	entries map[faultKey]*faultCount
	minute  time.Time // when lines began to count
	lines   int
}

// faultKey identifies the faults that a faultLog counts together.
type faultKey struct {
	network netip.Addr
	fault   string
}

type faultCount struct {
	logged time.Time
	since  int // faults after that
}

const (
	maxFaults     = 1000 // entries of a faultLog
	maxFaultLines = 60
)

// due reports whether a fault of the network of from is to be logged now, and how many were not logged since the last
// line.
func (f *faultLog) due(from netip.Addr, fault string) (unlogged int, due bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if now.Sub(f.minute) >= time.Minute {
		f.minute, f.lines = now, 0
	}
	c := f.count(faultKey{auth.Network(from).Addr(), fault})
	if now.Sub(c.logged) < time.Minute || f.lines >= maxFaultLines {
		c.since++
		return 0, false
	}
	unlogged = c.since
	c.logged, c.since = now, 0
	f.lines++
	return unlogged, true
}

// count returns the count of key. When there are too many, all are forgotten.
func (f *faultLog) count(key faultKey) *faultCount {
	c := f.entries[key]
	if c == nil {
		if f.entries == nil || len(f.entries) >= maxFaults {
			f.entries = make(map[faultKey]*faultCount)
		}
		c = &faultCount{}
		f.entries[key] = c
	}
	return c
}

// warnConn logs a fault of the connection c before its first request.
func (s *Server) warnConn(c net.Conn, fault string, err error) {
	from := clientNetwork(c.RemoteAddr())
	if unlogged, due := s.faults.due(from, fault); due {
		s.log.Warn(fault, "client_addr", addrString(c.RemoteAddr()), "err", err, "not_logged", unlogged)
	}
}

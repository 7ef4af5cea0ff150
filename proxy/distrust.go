package proxy

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// remedy is what an operator does about a client that does not trust our CA.
const remedy = "let it trust the CA (robotsproxy env and run do, robotsproxy ca path names the certificate, and http://robots.proxy/ca.pem serves it), " +
	"or, if it trusts no other certificate than the site's, name the host in intercept.tunnel_hosts"

var errDistrust = errors.New("the client does not trust the CA of this proxy")

// distrust tells the operator, once for each client and host, that a client does not trust our CA: the client itself can
// say no more than that a certificate is wrong.
type distrust struct {
	log   *slog.Logger
	count atomic.Int64

	mu   sync.Mutex // guards told
	told map[string]struct{}
}

// maxTold bounds what is remembered of who was told about; beyond, all is forgotten and may be told again.
const maxTold = 1000

func newDistrust(log *slog.Logger) *distrust {
	return &distrust{log: log, told: make(map[string]struct{})}
}

// tell writes one line about the client of c, unless it has.
func (d *distrust) tell(c *tunnelConn, message string) {
	from := peer(c.RemoteAddr()).String()
	if !d.first(from + " " + c.tunnel.host) {
		return
	}
	name := ""
	if c.tunnel.client != nil {
		name = c.tunnel.client.Name
	}
	d.log.Warn(message, "client", name, "client_addr", from, "host", c.tunnel.host, "remedy", remedy)
}

func (d *distrust) first(key string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, told := d.told[key]; told {
		return false
	}
	if len(d.told) >= maxTold {
		clear(d.told)
	}
	d.told[key] = struct{}{}
	return true
}

// alerts are those by which clients turn a certificate down (RFC 8446 section 6.2): bad_certificate, certificate_unknown
// and unknown_ca.
var alerts = []tls.AlertError{42, 46, 48}

// alertLength is that of an alert's record in clear (RFC 8446 section 5.1): type 21, version, length 2, level, description.
const alertLength = 7

// turnedDown reports whether a handshake that ended with err did so because of our certificate: the client said so, or
// it left when it had seen it.
func (c *tunnelConn) turnedDown(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "remote error" {
		return slices.ContainsFunc(alerts, func(a tls.AlertError) bool { return a.Error() == op.Err.Error() })
	}
	// OpenSSL sends the alert in clear where TLS 1.3 wants it encrypted, and crypto/tls takes that for a forgery.
	if l := c.last; len(l) == alertLength && l[0] == 21 && l[3] == 0 && l[4] == 2 {
		return slices.Contains(alerts, tls.AlertError(l[6]))
	}
	return c.signed && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET))
}

// watchTunnel hears from the inner server what becomes of a connection. Some clients, Node's among them, look at a
// certificate only when the handshake is over, and then leave without a word.
func (s *Server) watchTunnel(conn net.Conn, state http.ConnState) {
	noteState(conn, state)
	c := secureTunnel(conn)
	if c == nil {
		return
	}
	switch {
	case state == http.StateActive:
		c.spoke = true
	case state == http.StateClosed && c.signed && !c.spoke && time.Since(c.shook) < s.options.HeaderTimeout/2:
		s.distrust.tell(c, "a client left as soon as it had seen our certificate; it may not trust the CA")
	}
}

// secureTunnel returns the tunnel under the TLS of conn; nil where there is none.
func secureTunnel(conn net.Conn) *tunnelConn {
	if g, ok := conn.(secureGate); ok {
		conn = g.tls
	}
	if t, ok := conn.(*tls.Conn); ok {
		return t.NetConn().(*tunnelConn)
	}
	return nil
}

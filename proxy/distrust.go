package proxy

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
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

// alertLength is the length of an alert's record without encryption (RFC 8446 section 5.1): type 21, version, length 2, level,
// description.
const alertLength = 7

// turnedDown reports whether the client ended the handshake with one of alerts.
func (c *tunnelConn) turnedDown(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "remote error" {
		return slices.ContainsFunc(alerts, func(a tls.AlertError) bool { return a.Error() == op.Err.Error() })
	}
	// OpenSSL, and so curl and Python, sends the alert unencrypted in TLS 1.3, and crypto/tls returns another error for it.
	l := c.last
	return len(l) == alertLength && l[0] == 21 && l[3] == 0 && l[4] == 2 && slices.Contains(alerts, tls.AlertError(l[6]))
}

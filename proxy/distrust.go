package proxy

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// remedy is what an operator does about a client that does not trust our CA.
const remedy = "let it trust the CA (robotsproxy env and run do, robotsproxy ca path names the certificate, and http://robots.proxy/ca.pem serves it), " +
	"or, if it trusts no other certificate than the site's, name the host in intercept.tunnel_hosts"

var errDistrust = errors.New("the client does not trust the CA of this proxy")

// distrust logs that clients do not trust our CA, once for each client and host: the client itself can say no more than that a
// certificate is wrong. The lines about one client are bounded, since it chooses the hosts.
type distrust struct {
	log   *slog.Logger
	count atomic.Int64

	mu   sync.Mutex             // guards told
	told map[string]*toldClient // by share
}

// toldClient is what was logged about one client.
type toldClient struct {
	hosts map[string]struct{} // with the address that asked for them
	lines int                 // since hour
	hour  time.Time
}

const (
	maxClients = 1000 // that are remembered
	maxHosts   = 100  // of one client that are remembered
	mostLines  = 20   // about one client in an hour
)

func newDistrust(log *slog.Logger) *distrust {
	return &distrust{log: log, told: make(map[string]*toldClient)}
}

// tell logs one line about the client of c, unless there is one.
func (d *distrust) tell(c *tunnelConn, message string) {
	from := clientNetwork(c.RemoteAddr()).String()
	if !d.first(c.tunnel.share, from+" "+c.tunnel.host) {
		return
	}
	name := ""
	if c.tunnel.client != nil {
		name = c.tunnel.client.Name
	}
	d.log.Warn(message, "client", name, "client_addr", from, "host", c.tunnel.host, "remedy", remedy)
}

// first reports whether a line about client and host is to be logged.
func (d *distrust) first(client, host string) bool {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.told[client]
	if t == nil {
		t = &toldClient{hosts: make(map[string]struct{})}
		makeRoom(d.told, maxClients, func(client string) string { return client })
		d.told[client] = t
	}
	return t.first(host, now)
}

func (t *toldClient) first(host string, now time.Time) bool {
	if now.Sub(t.hour) >= time.Hour {
		t.hour, t.lines = now, 0
	}
	if _, told := t.hosts[host]; told || t.lines >= mostLines {
		return false
	}
	if len(t.hosts) >= maxHosts {
		clear(t.hosts)
	}
	t.hosts[host] = struct{}{}
	t.lines++
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

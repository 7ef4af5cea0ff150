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

// remedy is the advice to an operator whose client does not trust the CA.
const remedy = "let it trust the CA (robotsproxy env and run do, robotsproxy ca path names the certificate, and http://robots.proxy/ca.pem serves it), " +
	"or, if it trusts no other certificate than the site's, name the host in intercept.tunnel_hosts"

var errCARejected = errors.New("the client does not trust the CA of this proxy")

// caRejections counts the TLS handshakes in which a client rejected the CA, and logs one line for each client and host:
// the client's own error only says that a certificate is wrong. The lines for one client are bounded, since it chooses
// the hosts.
type caRejections struct {
	log   *slog.Logger
	count atomic.Int64

	mu      sync.Mutex                   // guards clients
	clients map[string]*clientRejections // by Client.share
}

// clientRejections are the rejections by one client that were logged.
type clientRejections struct {
	hosts map[string]struct{} // each with the client's address
	lines int                 // since hour
	hour  time.Time
}

const (
	maxRejecting = 1000 // clients that are remembered
	maxHosts     = 100  // hosts of one client that are remembered
	maxLines     = 20   // log lines for one client in an hour
)

func newCARejections(log *slog.Logger) *caRejections {
	return &caRejections{log: log, clients: make(map[string]*clientRejections)}
}

// add counts a rejection by the client of c, and logs it if that is due.
func (r *caRejections) add(c *tunnelConn) {
	r.count.Add(1)
	addr := clientNetwork(c.RemoteAddr()).String()
	if !r.due(c.tunnel.share, addr+" "+c.tunnel.host) {
		return
	}
	name := ""
	if c.tunnel.client != nil {
		name = c.tunnel.client.Name
	}
	r.log.Warn("a client does not trust the CA", "client", name, "agent", c.tunnel.agent, "client_addr", addr, "host", c.tunnel.host, "remedy", remedy)
}

// due reports whether a line for client and host is to be logged. After maxRejecting clients it forgets all, so a line
// may be repeated.
func (r *caRejections) due(client, host string) bool {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.clients[client]
	if c == nil {
		if len(r.clients) >= maxRejecting {
			clear(r.clients)
		}
		c = &clientRejections{hosts: make(map[string]struct{})}
		r.clients[client] = c
	}
	return c.due(host, now)
}

func (c *clientRejections) due(host string, now time.Time) bool {
	if now.Sub(c.hour) >= time.Hour {
		c.hour, c.lines = now, 0
	}
	if _, logged := c.hosts[host]; logged || c.lines >= maxLines {
		return false
	}
	if len(c.hosts) >= maxHosts {
		clear(c.hosts)
	}
	c.hosts[host] = struct{}{}
	c.lines++
	return true
}

// rejections are the alerts with which a client rejects a certificate (RFC 8446 section 6.2): bad_certificate,
// certificate_unknown and unknown_ca.
var rejections = []tls.AlertError{42, 46, 48}

// alertLength is the length of the record of an unencrypted alert (RFC 8446 section 5.1): type 21, version, length 2,
// level, description.
const alertLength = 7

// rejectedCA reports whether the client ended the handshake with one of rejections. OpenSSL, and so curl and Python,
// sends this alert unencrypted in TLS 1.3. crypto/tls tries to decrypt it and returns bad_record_mac, as for any
// damaged record (golang/go#76767), so rejectedCA reads the last record itself.
func (c *tunnelConn) rejectedCA(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "remote error" {
		return slices.ContainsFunc(rejections, func(a tls.AlertError) bool { return a.Error() == op.Err.Error() })
	}
	r := c.lastRead
	return len(r) == alertLength && r[0] == 21 && r[3] == 0 && r[4] == 2 && slices.Contains(rejections, tls.AlertError(r[6]))
}

package policy

import "slices"

// Interception says how a CONNECT to a host is handled. The zero value judges every path.
type Interception uint8

const (
	Intercept Interception = iota // terminate TLS in the proxy and judge each request
	Tunnel                        // forward its bytes unread: for clients that accept only the site's certificate
	NoTunnel                      // refuse it
)

var interceptions = [...]string{Intercept: "intercept", Tunnel: "tunnel", NoTunnel: "refuse"}

// String returns "intercept", "tunnel" or "refuse".
func (i Interception) String() string { return interceptions[i] }

// Interception returns how a CONNECT to host is handled. The most specific setting wins: the host's entry, then
// TunnelHosts, then the global setting.
func (p *Policy) Interception(host string) Interception {
	if h := p.host(host); h != nil && h.Interception != nil {
		return *h.Interception
	}
	if slices.ContainsFunc(p.options.TunnelHosts, func(pattern string) bool { return MatchHost(pattern, host) }) {
		return Tunnel
	}
	return p.options.Interception
}

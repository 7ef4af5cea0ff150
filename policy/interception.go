package policy

import (
	"fmt"
	"slices"
)

// Interception says what becomes of a CONNECT to a host. The zero value has every path judged.
type Interception uint8

const (
	Intercept Interception = iota // end its TLS here and judge each request inside
	Tunnel                        // pass its octets on unread: for clients that trust no other certificate than the site's
	NoTunnel                      // refuse it
)

var interceptions = [...]string{Intercept: "intercept", Tunnel: "tunnel", NoTunnel: "refuse"}

// ParseInterception reads "intercept", "tunnel" or "refuse".
func ParseInterception(s string) (Interception, error) {
	for i, word := range interceptions {
		if s == word {
			return Interception(i), nil
		}
	}
	return Intercept, fmt.Errorf("policy: interception %q is none of intercept, tunnel and refuse", s)
}

// String returns the word that ParseInterception reads.
func (i Interception) String() string { return interceptions[i] }

// Interception returns what becomes of a CONNECT to host. The most specific setting wins: the host's entry, then the list
// of hosts that are tunnelled, then the global one.
func (p *Policy) Interception(host string) Interception {
	if h := p.host(host); h != nil && h.Interception != nil {
		return *h.Interception
	}
	if slices.ContainsFunc(p.options.TunnelHosts, func(pattern string) bool { return MatchHost(pattern, host) }) {
		return Tunnel
	}
	return p.options.Interception
}

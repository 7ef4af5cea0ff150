package config

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/robotsproxy/robotsproxy/internal/settings"
)

// warnShadowedClients warns of each client that no request can reach, because an earlier client matches all its
// requests.
func (l *loader) warnShadowedClients() {
	all := l.cfg.Clients
	if !l.OK("clients", "listen", "proxy_protocol") {
		return
	}
	from := l.sources()
	for i, lower := range all {
		j := slices.IndexFunc(all[:i], func(upper Client) bool { return upper.covers(lower, from) })
		if j < 0 {
			continue
		}
		key, first := settings.Item("clients", i), settings.Item("clients", j)
		const text = "%s never applies%s: %s matches first (%s, %s)"
		l.Warn(key, text, settings.Quote(lower.Name), all[j].scope(lower), settings.Quote(all[j].Name), first, l.At(first))
	}
}

// sources returns the addresses from which requests come: on a loopback listener, those from which programs of this
// machine connect unless they choose another; else all.
func (l *loader) sources() []netip.Prefix {
	host, _, _ := net.SplitHostPort(l.cfg.Listen)
	addr, err := netip.ParseAddr(host)
	switch {
	case err != nil || l.cfg.isOpen():
		return []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	case addr.Unmap().Is4():
		return []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	}
	return []netip.Prefix{netip.MustParsePrefix("::1/128")}
}

// covers reports whether c matches every request that other matches, if requests come from the given addresses.
func (c Client) covers(other Client, from []netip.Prefix) bool {
	if c.User != "" && c.User != other.User || c.TLSSubject != "" && c.TLSSubject != other.TLSSubject {
		return false
	}
	if len(other.CIDR) > 0 {
		from = other.CIDR
	}
	outside := func(p netip.Prefix) bool {
		return !slices.ContainsFunc(c.CIDR, func(q netip.Prefix) bool { return within(p, q) })
	}
	return len(c.CIDR) == 0 || !slices.ContainsFunc(from, outside)
}

// scope limits the warning that c covers other to the requests for which it is certain.
func (c Client) scope(other Client) string {
	everywhere := func(p netip.Prefix) bool { return p.Bits() == 0 }
	if len(c.CIDR) == 0 || len(other.CIDR) > 0 || slices.ContainsFunc(c.CIDR, everywhere) {
		return ""
	}
	return " to requests from this machine"
}

// within reports whether all addresses of p are in q.
func within(p, q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Contains(p.Addr()) }

// warnShadowedHosts warns of each entry of hosts that never applies, because an earlier one matches the same hosts.
func (l *loader) warnShadowedHosts() {
	first := map[string]int{}
	for i, h := range l.cfg.Hosts {
		key := settings.Join(settings.Item("hosts", i), "host")
		if h.Host == "" || !l.OK(key) {
			continue
		}
		for _, wider := range covering(h.Host) {
			if j, covered := first[wider]; covered {
				upper := settings.Item("hosts", j)
				l.Warn(key, "%s never applies: %s matches first (%s, %s)", h.Host, wider, upper, l.At(settings.Join(upper, "host")))
				break
			}
		}
		if _, twice := first[h.Host]; !twice {
			first[h.Host] = i
		}
	}
}

// covering returns the patterns that match all hosts of pattern: pattern, "*." with each name above it, and "*".
func covering(pattern string) []string {
	all := []string{pattern}
	name := strings.TrimPrefix(pattern, "*.")
	for {
		_, above, more := strings.Cut(name, ".")
		if !more {
			return append(all, "*")
		}
		all, name = append(all, "*."+above), above
	}
}

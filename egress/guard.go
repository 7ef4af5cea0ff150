// Package egress reaches origins, and refuses the addresses that may not be reached.
//
//	guard := egress.New(egress.Options{Deny: deny})
//	guard.Protect(listener.Addr())
//	transport := egress.NewTransport(egress.TransportOptions{Guard: guard})
//	resp, err := transport.RoundTrip(req) // egress.Prohibited(err): the guard refused the address
//
// A Guard judges the address of each dial after the name was resolved. A Transport sends requests through it, to
// origins or to one Upstream proxy. A caller that must know the address before the dial gets it from Addresses, and
// puts it into the request's context with Pin. The package neither judges robots.txt nor keeps a pace.
package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"code.dny.dev/ssrf"

	"github.com/robotsproxy/robotsproxy/origin"
)

// PortRange is a range of ports, both ends included.
type PortRange struct{ First, Last uint16 }

// DefaultPorts are 80, 443 and every port from 1024 on: the ports of squid's Safe_ports that carry HTTP.
var DefaultPorts = []PortRange{{80, 80}, {443, 443}, {1024, 65535}}

// Options configure a Guard. The zero value permits every public address on DefaultPorts.
type Options struct {
	// Allow lists networks that are permitted although they are private or special.
	Allow []netip.Prefix

	// Deny lists networks that are prohibited. It takes precedence over Allow.
	Deny []netip.Prefix

	// Ports lists the permitted ports. If nil, DefaultPorts.
	Ports []PortRange

	// Resolve maps hosts to addresses, as a hosts file does: "a.example" in canonical form, "*.example" for every host
	// below example, or "*" for every name. The most specific pattern counts. An address as the host of a URL is mapped by
	// its own entry only. The guard judges these addresses too.
	Resolve map[string]netip.Addr

	// Resolver resolves names. If nil, net.DefaultResolver.
	Resolver *net.Resolver

	// KeepNames is the time for which the answers of Resolver are kept, and up to as long again. Each dial judges the
	// addresses anew. If zero, each dial asks Resolver.
	KeepNames time.Duration

	// Upstream is the proxy that carries every connection. If nil, the guard dials origins.
	Upstream *Upstream
}

// Guard judges every dial: to origins, for robots.txt files and for their redirects. It judges the address that is
// dialled, so a name that changes between look-up and dial gains nothing. If it has an Upstream, it dials the upstream
// proxy only, and judges the origin's addresses before it asks for them. Its methods may be called concurrently.
type Guard struct {
	options  Options
	resolve  patterns[netip.Addr] // Options.Resolve
	names    *names
	special  *ssrf.Guardian
	dialer   net.Dialer
	upstream net.Dialer // permits every address but our own: the operator configured the upstream proxy
	own      *listeners
}

// listeners are the addresses of our own listeners.
type listeners struct {
	mu  sync.RWMutex // guards all
	all []netip.AddrPort
}

// Kind is the reason for which the guard prohibits an address. Its values are metric labels.
type Kind string

// The kinds of ProhibitedError.
const (
	Port    Kind = "port"    // Options.Ports does not list the port
	Own     Kind = "own"     // one of our own listeners
	Denied  Kind = "denied"  // Options.Deny lists the address
	Special Kind = "special" // private or special, and Options.Allow does not list it
	Invalid Kind = "invalid" // not an IP address and port
)

// why explains each Kind to a user.
var why = map[Kind]string{
	Port:    "egress.ports does not list its port",
	Own:     "it is this proxy",
	Denied:  "egress.deny_addresses lists it",
	Special: "it is not a public address; egress.allow_addresses can allow it",
	Invalid: "it is not an IP address and a port",
}

// ProhibitedError is the error of a dial that the guard refused.
type ProhibitedError struct {
	Addr string // host:port or address:port
	Kind Kind
}

func (e *ProhibitedError) Error() string { return "egress: " + e.Addr + " is prohibited: " + e.Why() }

// Why explains the refusal in a clause that follows "is prohibited: ". It contains no address.
func (e *ProhibitedError) Why() string { return why[e.Kind] }

// Prohibited reports whether the guard caused err.
func Prohibited(err error) bool {
	var p *ProhibitedError
	return errors.As(err, &p)
}

// New returns a Guard.
func New(o Options) *Guard {
	if o.Ports == nil {
		o.Ports = DefaultPorts
	}
	if o.Resolver == nil {
		o.Resolver = net.DefaultResolver
	}
	g := &Guard{
		options: o, resolve: newPatterns(o.Resolve), special: ssrf.New(ssrf.WithAnyPort(), ssrf.WithAnyNetwork()),
		names: newNames(o.Resolver, o.KeepNames), own: &listeners{},
	}
	g.dialer = net.Dialer{KeepAlive: 30 * time.Second, Control: g.control}
	g.upstream = net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second, Resolver: o.Resolver}
	g.upstream.Control = g.controlUpstream
	return g
}

// With returns a Guard with other Options, but with the Resolver and the Upstream of g. It asks for all names anew. The
// two share the listeners that Protect has been called for, and will be.
func (g *Guard) With(o Options) *Guard {
	o.Resolver, o.Upstream = g.options.Resolver, g.options.Upstream
	other := New(o)
	other.own = g.own
	return other
}

// Protect prohibits dials to addr, one of our own listeners, whatever the options permit.
func (g *Guard) Protect(addr net.Addr) {
	ap, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return // not a TCP listener
	}
	ap = netip.AddrPortFrom(ap.Addr().WithZone("").Unmap(), ap.Port())
	g.own.mu.Lock()
	defer g.own.mu.Unlock()
	if !slices.Contains(g.own.all, ap) {
		g.own.all = append(g.own.all, ap)
	}
}

// Check returns the error of a dial to o as far as it is known without a look-up: for the port, and for an address
// literal.
func (g *Guard) Check(o origin.Origin) error {
	if !g.allowsPort(o.Port()) {
		return &ProhibitedError{o.HostPort(), Port}
	}
	addr, ok := g.mappedAddr(o.Host())
	if !ok {
		if addr, ok = o.Addr(); !ok {
			return nil // a name: control judges its address
		}
	}
	return g.check(netip.AddrPortFrom(addr, o.Port()))
}

// DialContext dials addr, "host:port". If the name has several addresses, it tries the permitted ones only. All that
// takes five seconds at most, without the look-up of the name. If the guard has an upstream proxy, the connection is a
// tunnel through it, and every address of the name must be permitted. See also Pin.
func (g *Guard) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if g.options.Upstream != nil {
		if err := g.checkName(ctx, addr); err != nil {
			return nil, err
		}
		return g.tunnel(ctx, addr)
	}
	all, err := g.targets(ctx, addr)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	c, err := g.dial(ctx, network, all)
	if err != nil && ctx.Err() == nil && !Prohibited(err) && !Exhausted(err) {
		g.names.forget(hostOf(addr)) // it may have moved
	}
	return c, err
}

func hostOf(addr string) string {
	host, _, _ := net.SplitHostPort(addr)
	return host
}

// targets returns the addresses to dial for addr: the one that is pinned in ctx, or else those of the name.
func (g *Guard) targets(ctx context.Context, addr string) ([]netip.AddrPort, error) {
	to, ok := pinned(ctx)
	if !ok {
		return g.lookUp(ctx, addr)
	}
	_, port, err := splitPort(addr)
	return []netip.AddrPort{netip.AddrPortFrom(to, port)}, err
}

// splitPort splits addr, "host:port", whose port is a number.
func splitPort(addr string) (host string, port uint16, err error) {
	host, number, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("the port of %s: %w", addr, err)
	}
	return host, uint16(n), nil
}

// mapped returns addr with the host replaced by its address in Options.Resolve.
func (g *Guard) mapped(addr string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	if to, ok := g.mappedAddr(host); ok {
		host = to.String()
	}
	return net.JoinHostPort(host, port), nil
}

// mappedAddr returns the address of host in Options.Resolve.
func (g *Guard) mappedAddr(host string) (to netip.Addr, ok bool) {
	to, ok = g.resolve.find(host)
	if _, err := netip.ParseAddr(host); ok && err == nil {
		to, ok = g.resolve.hosts[origin.Key(host)] // a pattern maps names only
	}
	return to, ok
}

// checkName resolves addr, "host:port", and returns an error if any of its addresses is prohibited: the upstream proxy
// may take any of them.
func (g *Guard) checkName(ctx context.Context, addr string) error {
	all, err := g.lookUp(ctx, addr)
	if err != nil {
		return err
	}
	for _, ap := range all {
		if err := g.check(ap); err != nil {
			return err
		}
	}
	return nil
}

// lookUp returns every address of addr, "host:port", whose port is a number.
func (g *Guard) lookUp(ctx context.Context, addr string) ([]netip.AddrPort, error) {
	addr, err := g.mapped(addr)
	if err != nil {
		return nil, err
	}
	host, port, err := splitPort(addr)
	if err != nil {
		return nil, err
	}
	addrs, err := g.addresses(ctx, host)
	if err != nil {
		return nil, err
	}
	all := make([]netip.AddrPort, len(addrs))
	for i, a := range addrs {
		all[i] = netip.AddrPortFrom(a.Unmap(), port)
	}
	return all, nil
}

// addresses returns the addresses of host, at least one.
func (g *Guard) addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}, nil
	}
	return g.names.of(ctx, host)
}

// control is a net.Dialer's Control: it judges the resolved address of each attempt before a packet is sent.
func (g *Guard) control(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return &ProhibitedError{address, Invalid}
	}
	return g.check(ap)
}

// check judges ap by the address that it leads to: the IPv4 address in an IPv4-mapped or NAT64 address, so that clients
// in networks without IPv4 reach public addresses and no others. All 6to4 and Teredo addresses are special.
func (g *Guard) check(ap netip.AddrPort) error {
	if !g.allowsPort(ap.Port()) {
		return &ProhibitedError{ap.String(), Port}
	}
	addr := origin.Reached(ap.Addr())
	if g.isOwn(ap) {
		return &ProhibitedError{ap.String(), Own}
	}
	if contains(g.options.Deny, addr) || contains(g.options.Deny, ap.Addr()) {
		return &ProhibitedError{ap.String(), Denied}
	}
	if contains(g.options.Allow, addr) || contains(g.options.Allow, ap.Addr()) {
		return nil
	}
	if err := g.special.SafeAddr(addr); err != nil {
		return &ProhibitedError{ap.String(), Special}
	}
	return nil
}

func (g *Guard) allowsPort(port uint16) bool {
	return slices.ContainsFunc(g.options.Ports, func(r PortRange) bool { return r.First <= port && port <= r.Last })
}

// isOwn reports whether ap, or the IPv4 address that it leads to, reaches one of our listeners. A listener on the
// unspecified address is reached by every address of this machine.
func (g *Guard) isOwn(ap netip.AddrPort) bool {
	addr := origin.Reached(ap.Addr())
	g.own.mu.RLock()
	defer g.own.mu.RUnlock()
	return slices.ContainsFunc(g.own.all, func(own netip.AddrPort) bool {
		if own.Port() != ap.Port() {
			return false
		}
		return own.Addr() == addr || own.Addr().IsUnspecified() && isLocal(addr) || addr.IsUnspecified()
	})
}

// isLocal reports whether addr is one of this machine's.
func isLocal(addr netip.Addr) bool {
	if addr.IsLoopback() {
		return true
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return true // unknown, so prohibit
	}
	return slices.ContainsFunc(addrs, func(a net.Addr) bool { return strings.HasPrefix(a.String(), addr.String()+"/") })
}

func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http/httptrace"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"code.dny.dev/ssrf"

	"github.com/robotsproxy/robotsproxy/origin"
)

// PortRange is a range of ports, both ends included.
type PortRange struct{ First, Last uint16 }

// DefaultPorts are the ports that squid calls safe and that speak HTTP: 80, 443 and all unregistered ones.
var DefaultPorts = []PortRange{{80, 80}, {443, 443}, {1024, 65535}}

// EgressOptions say where requests may go. The zero value allows every public address on the default ports.
type EgressOptions struct {
	Allow   []netip.Prefix        // go before the built-in list of private and special addresses
	Deny    []netip.Prefix        // go before Allow
	Ports   []PortRange           // if nil, DefaultPorts
	Resolve map[string]netip.Addr // canonical host to address, like a hosts file; the guard still applies

	Resolver *net.Resolver // finds the addresses of names; if nil, the system's
	Upstream *Upstream     // the proxy through which every connection goes; if nil, origins are dialled
}

// Egress is the one guard in front of every dial: of origins, of robots.txt files, of their redirects. It looks at the
// address that is dialled, after the name was resolved, so a name that changes between look-up and dial gains nothing.
// With an Upstream nothing is dialled but that: there is no way past it, and what is asked of it was checked before.
type Egress struct {
	options  EgressOptions
	special  *ssrf.Guardian
	dialer   net.Dialer
	upstream net.Dialer // for the upstream proxy, whose address the operator named

	mu  sync.RWMutex // guards own
	own []netip.AddrPort
}

// ProhibitedError is what a dial ends with that the guard refused.
type ProhibitedError struct {
	Addr string // what would have been dialled
	Why  string
}

func (e *ProhibitedError) Error() string {
	return fmt.Sprintf("proxy: %s is prohibited: %s", e.Addr, e.Why)
}

// Prohibited reports whether err comes from the guard.
func Prohibited(err error) bool {
	var p *ProhibitedError
	return errors.As(err, &p)
}

// NewEgress returns the guard that o describes.
func NewEgress(o EgressOptions) *Egress {
	if o.Ports == nil {
		o.Ports = DefaultPorts
	}
	e := &Egress{options: o, special: ssrf.New(ssrf.WithAnyPort(), ssrf.WithAnyNetwork())}
	e.dialer = net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second, Resolver: o.Resolver, Control: e.control}
	e.upstream = e.dialer
	e.upstream.Control = e.controlUpstream
	return e
}

// Protect adds a listener of ours to what may never be dialled, whatever the options allow.
func (e *Egress) Protect(addr net.Addr) {
	ap, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return // a listener without an IP address cannot be dialled over TCP
	}
	ap = netip.AddrPortFrom(ap.Addr().WithZone("").Unmap(), ap.Port())
	e.mu.Lock()
	defer e.mu.Unlock()
	if !slices.Contains(e.own, ap) {
		e.own = append(e.own, ap)
	}
}

// Check refuses what can be refused without resolving a name: the port, and an address literal.
func (e *Egress) Check(o origin.Origin) error {
	if !e.allowsPort(o.Port()) {
		return portProhibited(o.HostPort(), o.Port())
	}
	addr, ok := e.options.Resolve[o.Host()]
	if !ok {
		if addr, ok = o.Addr(); !ok {
			return nil // a name: the guard sees its address when it is dialled
		}
	}
	return e.check(netip.AddrPortFrom(addr, o.Port()))
}

// DialContext dials addr, "host:port", if the guard lets it. Of a name with several addresses only those are tried that
// are allowed. With an upstream proxy the connection is a tunnel through that, and every address must be allowed.
func (e *Egress) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if e.options.Upstream != nil {
		if err := e.checkName(ctx, addr); err != nil {
			return nil, err
		}
		return e.tunnel(ctx, addr)
	}
	addr, err := e.mapped(addr)
	if err != nil {
		return nil, err
	}
	return e.dial(ctx, network, addr)
}

// dial tries one address of addr after the other. Where some were allowed and none of those answered, that is the error:
// net would return the first one, which may be that another address is prohibited.
func (e *Egress) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var dead atomic.Pointer[error]
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{ConnectDone: func(_, _ string, err error) {
		if err != nil && !Prohibited(err) {
			dead.CompareAndSwap(nil, &err)
		}
	}})
	c, err := e.dialer.DialContext(ctx, network, addr)
	if failed := dead.Load(); failed != nil && Prohibited(err) {
		return nil, *failed
	}
	return c, err
}

// mapped returns addr with the address that Resolve has for its host.
func (e *Egress) mapped(addr string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	if to, ok := e.options.Resolve[host]; ok {
		host = to.String()
	}
	return net.JoinHostPort(host, port), nil
}

// checkName resolves addr, "host:port", and refuses it if any of its addresses may not be dialled: which one an upstream
// proxy takes, only that knows.
func (e *Egress) checkName(ctx context.Context, addr string) error {
	all, err := e.lookUp(ctx, addr)
	if err != nil {
		return err
	}
	for _, ap := range all {
		if err := e.check(ap); err != nil {
			return err
		}
	}
	return nil
}

// lookUp returns every address of addr, "host:port", whose port is a number.
func (e *Egress) lookUp(ctx context.Context, addr string) ([]netip.AddrPort, error) {
	addr, err := e.mapped(addr)
	if err != nil {
		return nil, err
	}
	host, number, _ := net.SplitHostPort(addr)
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("the port of %s: %w", addr, err)
	}
	ctx, cancel := context.WithTimeout(ctx, e.dialer.Timeout)
	defer cancel()
	addrs, err := e.resolver().LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	all := make([]netip.AddrPort, len(addrs))
	for i, a := range addrs {
		all[i] = netip.AddrPortFrom(a, uint16(port))
	}
	return all, nil
}

func (e *Egress) resolver() *net.Resolver {
	if e.options.Resolver != nil {
		return e.options.Resolver
	}
	return net.DefaultResolver
}

// control runs on the resolved address of each attempt, before a packet leaves.
func (e *Egress) control(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return &ProhibitedError{Addr: address, Why: "it is no IP address and port"}
	}
	return e.check(ap)
}

// check judges ap by the address that it leads to: the IPv4 address in an IPv4-mapped or NAT64 one, or IPv6-only networks
// could go nowhere. The 6to4 and Teredo forms are on the built-in list as a whole.
func (e *Egress) check(ap netip.AddrPort) error {
	if !e.allowsPort(ap.Port()) {
		return portProhibited(ap.String(), ap.Port())
	}
	addr := origin.Reached(ap.Addr())
	if e.isOwn(netip.AddrPortFrom(addr, ap.Port())) {
		return &ProhibitedError{Addr: ap.String(), Why: "it is this proxy"}
	}
	if contains(e.options.Deny, addr) || contains(e.options.Deny, ap.Addr()) {
		return &ProhibitedError{Addr: ap.String(), Why: "egress.deny_addresses names it"}
	}
	if contains(e.options.Allow, addr) || contains(e.options.Allow, ap.Addr()) {
		return nil
	}
	if err := e.special.SafeAddr(addr); err != nil {
		return &ProhibitedError{Addr: ap.String(), Why: "it is not a public address; egress.allow_addresses can allow it"}
	}
	return nil
}

func (e *Egress) allowsPort(port uint16) bool {
	return slices.ContainsFunc(e.options.Ports, func(r PortRange) bool { return r.First <= port && port <= r.Last })
}

func portProhibited(addr string, port uint16) error {
	return &ProhibitedError{Addr: addr, Why: "port " + strconv.Itoa(int(port)) + " is not among egress.ports"}
}

// isOwn reports whether ap is one of our listeners. One that listens on every address is reached by each of the
// machine's own.
func (e *Egress) isOwn(ap netip.AddrPort) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return slices.ContainsFunc(e.own, func(own netip.AddrPort) bool {
		if own.Port() != ap.Port() {
			return false
		}
		return own.Addr() == ap.Addr() || own.Addr().IsUnspecified() && isLocal(ap.Addr()) || ap.Addr().IsUnspecified()
	})
}

func isLocal(addr netip.Addr) bool {
	if addr.IsLoopback() {
		return true
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return true // refuse rather than guess
	}
	return slices.ContainsFunc(addrs, func(a net.Addr) bool { return strings.HasPrefix(a.String(), addr.String()+"/") })
}

func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

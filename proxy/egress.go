package proxy

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

// DefaultPorts are the ports that squid calls safe and that speak HTTP: 80, 443 and all unregistered ones.
var DefaultPorts = []PortRange{{80, 80}, {443, 443}, {1024, 65535}}

// EgressOptions say where requests may go. The zero value allows every public address on the default ports.
type EgressOptions struct {
	Allow   []netip.Prefix        // go before the built-in list of private and special addresses
	Deny    []netip.Prefix        // go before Allow
	Ports   []PortRange           // if nil, DefaultPorts
	Resolve map[string]netip.Addr // canonical host to address, like a hosts file; the guard still applies
}

// Egress is the one guard in front of every dial: of origins, of robots.txt files, of their redirects. It looks at the
// address that is dialled, after the name was resolved, so a name that changes between look-up and dial gains nothing.
type Egress struct {
	options EgressOptions
	special *ssrf.Guardian
	dialer  net.Dialer

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
	e.dialer = net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second, Control: e.control}
	return e
}

// Protect adds a listener of ours to what may never be dialled, whatever the options allow.
func (e *Egress) Protect(addr net.Addr) {
	ap, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return // a listener without an IP address cannot be dialled over TCP
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.own = append(e.own, netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()))
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
// are allowed.
func (e *Egress) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if mapped, ok := e.options.Resolve[host]; ok {
		addr = net.JoinHostPort(mapped.String(), port)
	}
	return e.dialer.DialContext(ctx, network, addr)
}

// control runs on the resolved address of each attempt, before a packet leaves.
func (e *Egress) control(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return &ProhibitedError{Addr: address, Why: "it is no IP address and port"}
	}
	return e.check(ap)
}

func (e *Egress) check(ap netip.AddrPort) error {
	if !e.allowsPort(ap.Port()) {
		return portProhibited(ap.String(), ap.Port())
	}
	addr := effective(ap.Addr())
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

// nat64 is the well-known prefix of RFC 6052 section 2.1. An address in it leads to the IPv4 address in its last 32
// bits, so that one is judged; else IPv6-only networks could go nowhere.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// effective returns the address that is really reached through addr. IPv4-mapped and NAT64 addresses lead to the IPv4
// address in them; the 6to4 and Teredo forms are on the built-in list as a whole.
func effective(addr netip.Addr) netip.Addr {
	addr = addr.WithZone("").Unmap()
	if nat64.Contains(addr) {
		b := addr.As16()
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return addr
}

func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

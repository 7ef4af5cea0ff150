// Package origin names the servers that rules belong to: one scheme, one host, one port, in one canonical form.
//
//	o, err := origin.Parse("HTTP://Bücher.Example.:080/path")
//	fmt.Println(o) // http://xn--bcher-kva.example
//
// An Origin is a small comparable value and the key of everything that is kept about a server: two spellings of one
// server are equal, and two servers are never equal (RFC 6454 section 4, RFC 9309 section 2.3). The only ways to make
// one are Parse and FromURL, so a value that is not zero is canonical. The package resolves no names and knows no paths.
package origin

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// Origin is a scheme ("http" or "https"), a canonical host and an effective port. The zero value is no origin.
type Origin struct {
	scheme string
	host   string
	port   uint16
}

// Parse returns the origin of an absolute http or https URL, or of "http://host:port" alone.
func Parse(s string) (Origin, error) {
	u, err := url.Parse(s)
	if err != nil {
		return Origin{}, fmt.Errorf("origin: %w", err)
	}
	return FromURL(u)
}

// FromURL returns the origin of u. Its errors are for the sender of u: each says which part cannot be understood.
func FromURL(u *url.URL) (Origin, error) {
	scheme := strings.ToLower(u.Scheme)
	port, ok := defaultPort(scheme)
	if !ok {
		return Origin{}, fmt.Errorf("origin: scheme %q is neither http nor https", u.Scheme)
	}
	if u.Opaque != "" {
		return Origin{}, errors.New("origin: the URL has no authority, which begins with //")
	}
	host, written, err := SplitAuthority(u.Host)
	if err != nil {
		return Origin{}, err
	}
	if written != 0 {
		port = written
	}
	return Origin{scheme: scheme, host: host, port: port}, nil
}

// New returns the origin of scheme, host and port, each of which may be written in any form that Parse understands.
// Port 0 stands for the scheme's default.
func New(scheme, host string, port uint16) (Origin, error) {
	if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
		host = "[" + host + "]"
	}
	if port != 0 {
		host += ":" + strconv.Itoa(int(port))
	}
	return FromURL(&url.URL{Scheme: scheme, Host: host})
}

// SplitAuthority reads uri-host [ ":" port ] (RFC 3986 section 3.2, without userinfo). The host is canonical; the port
// is 0 where none is written.
func SplitAuthority(authority string) (host string, port uint16, err error) {
	if strings.Contains(authority, "@") {
		return "", 0, errors.New("origin: an authority has no userinfo here") // and none is repeated: it may hold a password
	}
	name, digits := authority, ""
	if i := strings.LastIndexByte(authority, ':'); i >= 0 && !strings.HasSuffix(authority, "]") {
		name, digits = authority[:i], authority[i+1:]
		if port, err = parsePort(digits); err != nil {
			return "", 0, fmt.Errorf("origin: authority %q: %w", authority, err)
		}
	}
	if strings.HasPrefix(name, "[") != strings.HasSuffix(name, "]") || strings.Count(name, ":") > 0 && !strings.HasPrefix(name, "[") {
		return "", 0, fmt.Errorf("origin: authority %q: an IPv6 address stands in brackets, and nothing else does", authority)
	}
	if host, err = Host(name); err != nil {
		return "", 0, err
	}
	return host, port, nil
}

// parsePort reads a port of one to five significant digits. Leading zeros are harmless (RFC 3986 section 3.2.3); an
// empty port stands for the default, and 0 is no port that anything can be sent to.
func parsePort(digits string) (uint16, error) {
	if digits == "" {
		return 0, nil
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return 0, fmt.Errorf("port %q is not a number", digits)
		}
	}
	trimmed := strings.TrimLeft(digits, "0")
	port, err := strconv.ParseUint(trimmed, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("port %q is not between 1 and 65535", digits)
	}
	return uint16(port), nil
}

// Host returns the canonical form of a host as it stands in a URL: a name in lower-case ASCII (IDNA, RFC 5891) without
// trailing dot, an IPv4 address in four decimal parts, or an IPv6 address without brackets in its shortest form
// (RFC 5952). An IPv4-mapped IPv6 address is the IPv4 address in it (RFC 4291 section 2.5.5.2). Other ways to write an IPv4 address (octal, hexadecimal, one number) are refused: resolvers disagree on
// them, so what was judged might not be what is dialled. So are zones, which mean something on one machine only.
func Host(s string) (string, error) {
	if inner, ok := strings.CutPrefix(s, "["); ok {
		return ipv6(strings.TrimSuffix(inner, "]"), s)
	}
	if strings.Contains(s, ":") {
		return ipv6(s, s)
	}
	name := strings.TrimSuffix(s, ".")
	if looksNumeric(name) {
		if addr, err := netip.ParseAddr(name); err == nil {
			return addr.String(), nil
		}
	}
	ascii, err := toASCII(name)
	if err != nil {
		return "", fmt.Errorf("origin: host %q: %w", s, err)
	}
	if looksNumeric(ascii) {
		return "", fmt.Errorf("origin: host %q is a number but not an IPv4 address in four decimal parts", s)
	}
	return ascii, nil
}

func ipv6(s, written string) (string, error) {
	addr, err := netip.ParseAddr(s)
	if err != nil || !addr.Is6() || addr.Zone() != "" {
		return "", fmt.Errorf("origin: host %q is not an IPv6 address", written)
	}
	return addr.Unmap().String(), nil
}

// nat64 is the well-known prefix of RFC 6052 section 2.1.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// Key returns the name by which a canonical host is paced, stopped and found in the configuration. For a NAT64 address
// that is the IPv4 address in it: both reach one server, though they are dialled and named otherwise. Every other host is
// its own key.
func Key(host string) string {
	if !strings.HasPrefix(host, "64:ff9b::") {
		return host
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	return Reached(addr).String()
}

// Reached returns the address of the server that addr leads to, without a zone: for an IPv4-mapped or a NAT64 address
// the IPv4 address in it, for every other addr itself.
func Reached(addr netip.Addr) netip.Addr {
	addr = addr.WithZone("").Unmap()
	if nat64.Contains(addr) {
		b := addr.As16()
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return addr
}

// lookup maps to lower case and to punycode, as browsers do, but keeps underscores: they are not host names, yet
// servers answer to them.
var lookup = idna.New(idna.MapForLookup(), idna.Transitional(false), idna.StrictDomainName(false))

func toASCII(name string) (string, error) {
	ascii := strings.ToLower(name)
	if !isASCII(name) || strings.Contains(ascii, "xn--") {
		var err error
		if ascii, err = punycode(name); err != nil {
			return "", err
		}
	}
	return ascii, checkName(ascii)
}

// punycode writes name in ASCII. What it wrote must be read as itself: idna lets some octets pass that are no text.
func punycode(name string) (string, error) {
	ascii, err := lookup.ToASCII(name)
	if err != nil {
		return "", err
	}
	again, err := lookup.ToASCII(ascii)
	if err != nil || again != ascii || !utf8.ValidString(name) {
		return "", fmt.Errorf("it is no name in Unicode")
	}
	return strings.TrimSuffix(ascii, "."), nil
}

// checkName accepts labels of letters, digits, "-" and "_", 1 to 63 octets each and 253 in all (RFC 1035 section 2.3.4).
func checkName(name string) error {
	if name == "" {
		return fmt.Errorf("it is empty")
	}
	if len(name) > 253 {
		return fmt.Errorf("it is longer than 253 octets")
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return fmt.Errorf("each label has 1 to 63 octets")
		}
		if i := strings.IndexFunc(label, notNameRune); i >= 0 {
			return fmt.Errorf("%q does not belong in a name", label[i])
		}
	}
	return nil
}

func notNameRune(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_')
}

// looksNumeric reports whether a resolver might read name as an IPv4 address: its last label is a number (WHATWG URL,
// "ends in a number").
func looksNumeric(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

func defaultPort(scheme string) (uint16, bool) {
	switch scheme {
	case "http":
		return 80, true
	case "https":
		return 443, true
	}
	return 0, false
}

// IsZero reports whether o is no origin at all.
func (o Origin) IsZero() bool { return o == Origin{} }

// Scheme returns "http" or "https".
func (o Origin) Scheme() string { return o.scheme }

// Host returns the canonical host, an IPv6 address without brackets.
func (o Origin) Host() string { return o.host }

// Addr returns the address that the host is, if it is one and not a name.
func (o Origin) Addr() (netip.Addr, bool) {
	if !strings.Contains(o.host, ":") && !looksNumeric(o.host) {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(o.host)
	return addr, err == nil
}

// Port returns the effective port, which is the scheme's default where none was written.
func (o Origin) Port() uint16 { return o.port }

// HostPort returns "host:port" as net.Dial wants it.
func (o Origin) HostPort() string { return net.JoinHostPort(o.host, strconv.Itoa(int(o.port))) }

// Authority returns the host, and the port unless it is the scheme's default: the value of a Host field.
func (o Origin) Authority() string {
	if port, _ := defaultPort(o.scheme); port != o.port {
		return o.HostPort()
	}
	if strings.Contains(o.host, ":") {
		return "[" + o.host + "]"
	}
	return o.host
}

// String returns the origin as RFC 6454 section 6.2 writes it: "https://a.example:8443".
func (o Origin) String() string {
	if o.IsZero() {
		return ""
	}
	return o.scheme + "://" + o.Authority()
}

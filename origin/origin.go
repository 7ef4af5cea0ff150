// Package origin parses and canonicalizes the origin of a URL: its scheme, host and port, to which robots.txt rules
// apply.
//
//	o, err := origin.Parse("HTTP://Bücher.Example.:080/path")
//	fmt.Println(o) // http://xn--bcher-kva.example
//
// An Origin is a small comparable value and the key of all data about a server: two spellings of one server are equal,
// and two servers are never equal (RFC 6454 section 4, RFC 9309 section 2.3). Only Parse, FromURL and New make one, so
// a nonzero value is canonical. The package does not resolve names and does not handle paths.
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

// Origin is a scheme ("http" or "https"), a canonical host and an effective port. The zero value is invalid.
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

// FromURL returns the origin of u. Its errors name the part of u that is invalid, for the sender of u.
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

// New returns the origin of scheme, host and port, in any form that Parse accepts. Port 0 means the scheme's default.
func New(scheme, host string, port uint16) (Origin, error) {
	if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
		host = "[" + host + "]"
	}
	if port != 0 {
		host += ":" + strconv.Itoa(int(port))
	}
	return FromURL(&url.URL{Scheme: scheme, Host: host})
}

// SplitAuthority parses uri-host [ ":" port ] (RFC 3986 section 3.2, without userinfo). It returns the canonical host,
// and port 0 if the authority has no port.
func SplitAuthority(authority string) (host string, port uint16, err error) {
	if strings.Contains(authority, "@") {
		return "", 0, errors.New("origin: an authority has no userinfo here") // not quoted: it may contain a password
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

// parsePort parses a port of one to five significant digits. It accepts leading zeros (RFC 3986 section 3.2.3). An
// empty port means the default and returns 0; the port 0 is an error, since nothing can be sent to it.
func parsePort(digits string) (uint16, error) {
	if digits == "" {
		return 0, nil
	}
	if strings.Trim(digits, "0123456789") != "" {
		return 0, fmt.Errorf("port %q is not a number", digits)
	}
	trimmed := strings.TrimLeft(digits, "0")
	port, err := strconv.ParseUint(trimmed, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("port %q is not between 1 and 65535", digits)
	}
	return uint16(port), nil
}

// Host returns the canonical form of the host of a URL: a name in lower-case ASCII (IDNA, RFC 5891) without trailing
// dot, an IPv4 address in four decimal parts, or an IPv6 address without brackets in its shortest form (RFC 5952). For
// an IPv4-mapped IPv6 address it returns the IPv4 address (RFC 4291 section 2.5.5.2).
//
// Host refuses other forms of an IPv4 address (octal, hexadecimal, one number): resolvers disagree on them, so the
// proxy could judge one server and dial another. It also refuses zones, which have a meaning on one machine only.
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

// Key returns the key of a canonical host for pacing, stops and configuration. For a NAT64 address it is the embedded
// IPv4 address, since both reach one server although they are dialled differently. For all other hosts it is the host.
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

// AddrKey returns the Key of a host that is the address addr.
func AddrKey(addr netip.Addr) string { return Reached(addr).String() }

// Reached returns the address of the server that addr leads to, without a zone: the embedded IPv4 address if addr is
// IPv4-mapped or NAT64, else addr.
func Reached(addr netip.Addr) netip.Addr {
	addr = addr.WithZone("").Unmap()
	if nat64.Contains(addr) {
		b := addr.As16()
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return addr
}

// lookup maps to lower case and to punycode, as browsers do. It keeps underscores: they are not valid in host names,
// but servers use them.
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

// punycode converts name to ASCII. It converts the result again and compares the two, since idna accepts some invalid
// bytes.
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

// checkName accepts labels of letters, digits, "-" and "_", of 1 to 63 bytes each and 253 in all (RFC 1035 section
// 2.3.4).
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

// looksNumeric reports whether a resolver might take name for an IPv4 address: its last label is a number (WHATWG URL,
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

// IsZero reports whether o is the zero Origin.
func (o Origin) IsZero() bool { return o == Origin{} }

// Scheme returns "http" or "https".
func (o Origin) Scheme() string { return o.scheme }

// Host returns the canonical host, an IPv6 address without brackets.
func (o Origin) Host() string { return o.host }

// Addr returns the host as an address. It reports false if the host is a name.
func (o Origin) Addr() (netip.Addr, bool) {
	if !strings.Contains(o.host, ":") && !looksNumeric(o.host) {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(o.host)
	return addr, err == nil
}

// Port returns the effective port: the scheme's default if the URL had no port.
func (o Origin) Port() uint16 { return o.port }

// HostPort returns "host:port" in the form of net.Dial.
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

package audit

import "net/netip"

// AddrMode says how much of a client's address a Record keeps. The zero value keeps it, and an unknown one masks it.
type AddrMode string

const (
	AddrKeep AddrMode = "keep" // keep address and port
	AddrMask AddrMode = "mask" // keep the network: /24 of IPv4, /48 of IPv6
	AddrDrop AddrMode = "drop" // keep nothing
)

// Apply returns the part of addr, an address with or without a port, to keep. Of other text it keeps nothing, unless m
// keeps addresses.
func (m AddrMode) Apply(addr string) string {
	switch m {
	case AddrKeep, "":
		return addr
	case AddrDrop:
		return ""
	default:
		return network(addr)
	}
}

// network returns the network of addr, such as 192.0.2.0/24, or "".
func network(addr string) string {
	ip, err := netip.ParseAddr(addr)
	if ap, withPort := netip.ParseAddrPort(addr); withPort == nil {
		ip, err = ap.Addr(), nil
	}
	if err != nil {
		return ""
	}
	ip, bits := ip.Unmap().WithZone(""), 48
	if ip.Is4() {
		bits = 24
	}
	return netip.PrefixFrom(ip, bits).Masked().String()
}

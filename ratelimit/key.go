package ratelimit

import (
	"net/netip"

	"golang.org/x/net/publicsuffix"
)

// Domain returns the key under which all hosts of one registrable domain share a lane: "example.co.uk" for
// "www.example.co.uk". A host that is itself a public suffix, or an address, keeps a lane of its own. The host is
// canonical: lower case, without a trailing dot.
func Domain(host string) string {
	if _, err := netip.ParseAddr(host); err == nil {
		return host
	}
	domain, err := publicsuffix.EffectiveTLDPlusOne(host)
	if err != nil {
		return host
	}
	return domain
}

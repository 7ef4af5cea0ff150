package ratelimit

import (
	"net/netip"

	"golang.org/x/net/publicsuffix"
)

// Domain returns the key under which all hosts of one registrable domain share a lane: "example.co.uk" for
// "www.example.co.uk". It returns addresses and public suffixes unchanged. The host must be canonical: lower case,
// without a trailing dot.
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

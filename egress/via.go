package egress

import (
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
)

// NewPseudonym returns a random name for one proxy's Via field (RFC 9110 section 7.6.3).
func NewPseudonym() string { return "robotsproxy-" + strings.ToLower(rand.Text()[:8]) }

// Via holds the values that a proxy adds to the Via field, one for each version of HTTP. The zero Via adds empty
// values.
type Via struct{ pseudonym, http1, http2 string }

// NewVia returns the Via of the proxy with this pseudonym.
func NewVia(pseudonym string) Via { return Via{pseudonym, "1.1 " + pseudonym, "2 " + pseudonym} }

// Add appends the value for a message that was received by this major version of HTTP.
func (v Via) Add(h http.Header, protoMajor int) {
	value := v.http1
	if protoMajor == 2 {
		value = v.http2
	}
	h["Via"] = append(h["Via"], value)
}

// In reports whether h has passed this proxy before.
func (v Via) In(h http.Header) bool {
	return slices.ContainsFunc(h["Via"], func(s string) bool { return strings.Contains(s, v.pseudonym) })
}

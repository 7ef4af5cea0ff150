package certs

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"
)

const (
	leafLife      = 7 * 24 * time.Hour
	maxCommonName = 64 // RFC 5280 appendix A.1, ub-common-name
)

// Leaf returns a certificate for host that clients of the CA accept, with its key and the chain to send. It is kept:
// of many calls for one host at once one signs, and calls for different hosts sign at the same time. Certificates are
// shared and must not be changed.
//
// Host is a canonical name (lower-case ASCII labels, no trailing dot) or IP address. Anything else is refused, a
// wildcard above all: the certificate would be good for names that nobody asked to be connected to.
func (a *Authority) Leaf(host string) (*tls.Certificate, error) {
	now := a.now()
	ca := a.current(now).active
	if cert := a.leaves.get(host, ca.cert(), now); cert != nil {
		return cert, nil
	}
	// Look again inside the flight: a caller may miss above, and start a flight of its own after the one that
	// signed for this host has ended. A flight is one CA's, so that nobody gets on it who came after a rotation.
	cert, err, _ := a.signing.Do(id(ca.cert())+" "+host, func() (any, error) {
		if cert := a.leaves.get(host, ca.cert(), now); cert != nil {
			return cert, nil
		}
		return a.issue(ca, host, now)
	})
	if err != nil {
		return nil, fmt.Errorf("certs: issuing for %q: %w", host, err)
	}
	return cert.(*tls.Certificate), nil
}

// issue signs a certificate for host by ca and keeps it until a third of its life is left.
func (a *Authority) issue(ca *pair, host string, now time.Time) (*tls.Certificate, error) {
	template, err := leafTemplate(host)
	if err != nil {
		return nil, err
	}
	issuer := ca.cert()
	if !now.Before(issuer.NotAfter) {
		return nil, expired(issuer)
	}
	template.NotBefore, template.NotAfter = now.Add(-backdate), now.Add(leafLife)
	if template.NotAfter.After(issuer.NotAfter) {
		template.NotAfter = issuer.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, a.leafKey.Public(), ca.key)
	if err != nil {
		return nil, err
	}
	// The CA is sent along although clients have it: where they show or pin the chain, it is the part that stays.
	// The parsed form that tls.Certificate has room for would quadruple its size, and no server reads it.
	cert := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.leafKey}
	for _, c := range ca.certs {
		cert.Certificate = append(cert.Certificate, c.Raw)
	}
	// Life is counted from now. Counted from the backdated start, a leaf that ends with its CA would be due for
	// renewal when it is made, and each call would sign.
	renew := now.Add(template.NotAfter.Sub(now) * 2 / 3)
	a.leaves.add(&leaf{host: host, issuer: issuer, cert: cert, from: template.NotBefore, renew: renew})
	return cert, nil
}

// leafTemplate describes a TLS server of one host. The host stands in the subject alternative name, where clients look
// (RFC 9525 section 6.1); the common name is for people. Without a serial number, crypto/x509 draws one of 159 bits
// from the random source.
func leafTemplate(host string) (*x509.Certificate, error) {
	template := &x509.Certificate{
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" || addr.String() != host {
			return nil, fmt.Errorf("the address is not in canonical form (%s)", addr.WithZone(""))
		}
		template.IPAddresses = []net.IP{addr.AsSlice()}
	} else {
		if err := checkName(host); err != nil {
			return nil, err
		}
		template.DNSNames = []string{host}
	}
	if len(host) < maxCommonName {
		template.Subject = pkix.Name{CommonName: host}
	}
	return template, nil
}

// checkName accepts labels of lower-case letters, digits, "-" and "_", 1 to 63 octets each and 253 in all (RFC 1035
// section 2.3.4), of which the last is no number: a resolver could take such a name for an address.
func checkName(name string) error {
	if len(name) > 253 {
		return errors.New("a name has 253 octets at most")
	}
	var last string
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return errors.New("each label of a name has 1 to 63 octets")
		}
		if strings.ContainsFunc(label, func(r rune) bool { return !isNameRune(r) }) {
			return errors.New("a name has lower-case letters, digits, - and _ only")
		}
		last = label
	}
	if strings.Trim(last, "0123456789") == "" {
		return errors.New("the last label of a name is not a number")
	}
	return nil
}

func isNameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_'
}

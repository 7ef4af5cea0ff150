package certs

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
)

const (
	leafLife      = 7 * 24 * time.Hour
	maxCommonName = 64 // RFC 5280 appendix A.1, ub-common-name
)

// Leaf returns a certificate for host, with its key and chain. Certificates are kept, up to 64 MiB of them, and shared:
// the caller must not modify them. Of concurrent calls for one host one signs; calls for different hosts sign concurrently.
//
// Host is a canonical name (lower-case ASCII labels, no trailing dot) or IP address. Leaf refuses anything else. In
// particular it refuses a wildcard, whose certificate would be valid for hosts that the client did not ask for.
func (a *Authority) Leaf(host string) (*tls.Certificate, error) {
	now := a.now()
	ca := a.current(now).active
	if cert := a.leaves.get(host, ca.cert(), now); cert != nil {
		return cert, nil
	}
	// Look again inside the call: a caller may miss above, and begin another call after the one that signed for this
	// host has ended. The key names the CA, so that a caller after a rotation does not join a call before it.
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

// issue signs a certificate for host by ca, and keeps it until a third of its life is left.
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
	// The chain includes the CA although clients have it: for clients that show or pin the chain it is the constant part.
	// Leaf stays nil: the parsed form would take four times the memory, and crypto/tls does not read it in a server.
	cert := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.leafKey}
	for _, c := range ca.certs {
		cert.Certificate = append(cert.Certificate, c.Raw)
	}
	// The life counts from now. If it counted from the backdated start, a leaf that expires with its CA would be due for
	// renewal at once, and each call would sign.
	renew := now.Add(template.NotAfter.Sub(now) * 2 / 3)
	a.issued.Add(1)
	host = strings.Clone(host) // it may share memory with a whole request
	a.leaves.add(&leaf{host: host, issuer: issuer, cert: cert, from: template.NotBefore, renew: renew})
	return cert, nil
}

// leafTemplate returns the template of a TLS server's certificate for host. The host is in the subject alternative
// name, which clients check (RFC 9525 section 6.1); the common name is for people. crypto/x509 chooses a random serial
// number of 159 bits.
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
		name, err := origin.Host(host)
		if err != nil {
			return nil, err
		}
		if name != host {
			return nil, fmt.Errorf("the name is not in canonical form (%s)", name)
		}
		template.DNSNames = []string{host}
	}
	if len(host) < maxCommonName {
		template.Subject = pkix.Name{CommonName: host}
	}
	return template, nil
}

package proxy

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/policy"
)

// pki is a CA that signs the certificate of a listener and those of its clients.
type pki struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newPKI(t testing.TB) *pki {
	p := &pki{t: t}
	pair := p.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "CA"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	p.cert, p.key = pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey)
	return p
}

// issue signs template; the first one signs itself. Without an end it lasts an hour.
func (p *pki) issue(template *x509.Certificate) tls.Certificate {
	p.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore = big.NewInt(time.Now().UnixNano()), time.Now().Add(-24*time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	parent, by := p.cert, p.key
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		p.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		p.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func (p *pki) client(name string, end time.Time) *tls.Certificate {
	cert := p.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotAfter: end, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return &cert
}

func (p *pki) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(p.cert)
	return pool
}

// listener returns the configuration of a listener at 127.0.0.1, as auth.Certificates returns it.
func (p *pki) listener() *tls.Config {
	cert := p.issue(&x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return &tls.Config{
		Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}, SessionTicketsDisabled: true,
		ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: p.pool(),
	}
}

// secureClient returns a client of a proxy with TLS that sends cert, which may be nil.
func (r *rig) secureClient(p *pki, cert *tls.Certificate) *http.Client {
	c := r.client(false)
	t := c.Transport.(*http.Transport)
	t.Proxy = http.ProxyURL(&url.URL{Scheme: "https", Host: r.addr})
	t.TLSClientConfig.RootCAs.AddCert(p.cert)
	if cert != nil {
		t.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	return c
}

func newSecureRig(t *testing.T, p *pki, change func(*Options)) *rig {
	return newRig(t, func(o *Options) {
		o.TLS = p.listener()
		o.Clients = []Client{
			{Client: policy.Client{Name: "far"}, Subject: "CN=ci", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
			{Client: policy.Client{Name: "both"}, Subject: "CN=both", User: "news"},
			{Client: policy.Client{Name: "ci"}, Subject: "CN=ci"},
			{Client: policy.Client{Name: "lab"}, User: "lab"},
		}
		if change != nil {
			change(o)
		}
	})
}

// TestClientsByCertificate crawls through a listener with TLS, in the clear and inside tunnels.
func TestClientsByCertificate(t *testing.T) {
	p := newPKI(t)
	for _, row := range []struct {
		name, subject, user string
		users               bool
		want                string // the client, or status and reason
	}{
		{"a listed subject", "ci", "", false, "ci"},
		{"another subject", "cx", "", false, "403 identity"},
		{"no certificate", "", "", false, "403 identity"},
		{"no certificate and no password", "", "", true, "407 auth"},
		{"a password alone", "", "lab", true, "lab"},
		{"a certificate that needs a password too", "both", "", true, "407 auth"},
		{"a certificate and its password", "both", "news", true, "both"},
		{"the password of another client's certificate", "ci", "news", true, "ci"},
		{"a password without its certificate", "", "news", true, "403 identity"},
	} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(row.name+"/"+scheme, func(t *testing.T) {
				r := newSecureRig(t, p, func(o *Options) {
					if row.users {
						o.Users = loadUsers(t, "news:"+hashOf(t, "pw"), "lab:"+hashOf(t, "pw"))
					}
				})
				var cert *tls.Certificate
				if row.subject != "" {
					cert = p.client(row.subject, time.Time{})
				}
				c := r.secureClient(p, cert)
				if row.user != "" {
					c = as(c, row.user, "pw")
				}
				resp, err := c.Get(r.url(scheme, "/page/1"))
				got := ""
				switch {
				case err != nil && strings.Contains(err.Error(), "auth: This proxy wants"):
					got = "407 auth"
				case err != nil:
					t.Fatal(err)
				default:
					resp.Body.Close()
					got = fmt.Sprintf("%d %s", resp.StatusCode, resp.Header.Get("Robotsproxy-Reason"))
				}
				rec := r.last(1)
				if rec.Client != "" {
					got = rec.Client
				}
				if got != row.want && !strings.HasPrefix(got, row.want) {
					t.Errorf("the client is %q, want %q: %+v", got, row.want, rec)
				}
				if row.subject == "cx" && !strings.Contains(rec.Error, "CN=cx") {
					t.Errorf("the record of an unknown certificate does not name it: %q", rec.Error)
				}
			})
		}
	}
}

// TestRefusedClientCertificates sends certificates that do not verify. Each client gets an alert that says why, and
// each is recorded.
func TestRefusedClientCertificates(t *testing.T) {
	p := newPKI(t)
	r := newSecureRig(t, p, nil)
	for i, row := range []struct {
		name, alert, text string
		cert              *tls.Certificate
	}{
		{"expired", "expired certificate", "has expired", p.client("ci", time.Now().Add(-time.Hour))},
		{"another CA", "unknown certificate authority", "unknown authority", newPKI(t).client("ci", time.Time{})},
	} {
		_, err := r.secureClient(p, row.cert).Get(r.url("http", "/page/1"))
		if err == nil || !strings.Contains(err.Error(), row.alert) {
			t.Errorf("%s: the client sees %v, want %q", row.name, err, row.alert)
		}
		rec := r.last(i + 1)
		if rec.Reason != policy.ReasonAuth || rec.Decision != policy.Deny || !strings.Contains(rec.Error, row.text) || rec.Client != "" {
			t.Errorf("%s: recorded as %+v", row.name, rec)
		}
	}
	if n := len(r.site.Paths("a.example")); n > 0 {
		t.Errorf("%d requests reached the origin", n)
	}
	r.server.Close()
	if n := strings.Count(r.log.String(), "a client's certificate is refused"); n != 1 {
		t.Errorf("%d lines about refused certificates of one client, want 1:\n%s", n, r.log)
	}
}

// TestTheListenerWithTLS sends what is not TLS with HTTP/1.1 to it.
func TestTheListenerWithTLS(t *testing.T) {
	p := newPKI(t)
	r := newSecureRig(t, p, func(o *Options) { o.HeaderTimeout = 300 * time.Millisecond })

	_, err := r.client(true).Get(r.url("http", "/page/1"))
	if rec := r.last(1); rec.Reason != policy.ReasonBadRequest || rec.Status != 400 {
		t.Errorf("HTTP without TLS: %v, recorded as %+v", err, rec)
	}
	c := r.raw("GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 400 || !strings.Contains(string(body), "https://") {
		t.Errorf("HTTP without TLS is answered %s: %s", resp.Status, body)
	}

	if c, err := tls.Dial("tcp", r.addr, &tls.Config{RootCAs: p.pool(), NextProtos: []string{"h2"}}); err == nil {
		c.Close()
		t.Error("HTTP/2 was accepted")
	} else if !strings.Contains(err.Error(), "no application protocol") {
		t.Errorf("a client of HTTP/2 alone sees %v", err)
	}
	if c, err := tls.Dial("tcp", r.addr, &tls.Config{RootCAs: p.pool(), MaxVersion: tls.VersionTLS11}); err == nil {
		c.Close()
		t.Error("TLS 1.1 was accepted")
	}

	silent := r.raw("")
	began := time.Now()
	if _, err := io.ReadAll(silent); err != nil || time.Since(began) > 5*time.Second {
		t.Errorf("a silent client: %v after %v, want the end after the header time-out", err, time.Since(began))
	}
	r.eventually("closed connections", func() bool { return r.server.Connections() == 0 })
	if ok, _ := r.get(r.secureClient(p, p.client("ci", time.Time{})), r.url("https", "/page/1")); ok.StatusCode != 200 {
		t.Errorf("afterwards a client is answered %s", ok.Status)
	}
}

package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// leafOf parses what Leaf returns for host.
func leafOf(t testing.TB, a *Authority, host string) *x509.Certificate {
	t.Helper()
	cert, err := a.Leaf(host)
	if err != nil {
		t.Fatalf("Leaf(%q): %v", host, err)
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		t.Fatalf("Leaf(%q): %v", host, err)
	}
	return leaf
}

// verify fails unless a client that trusts a's CA alone accepts its leaf for host at that time.
func verify(t testing.TB, a *Authority, host string, at time.Time) *x509.Certificate {
	t.Helper()
	leaf := leafOf(t, a, host)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(a.PEM()) {
		t.Fatalf("PEM() = %s: no certificate", a.PEM())
	}
	name := host
	if strings.Contains(host, ":") {
		name = "[" + host + "]"
	}
	if _, err := leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: at}); err != nil {
		t.Errorf("Leaf(%q) at %v: %v", host, at, err)
	}
	return leaf
}

func TestLeaf(t *testing.T) {
	a := open(t, Options{Dir: t.TempDir()})
	long := strings.Repeat("a", 60) + ".example"
	for _, tt := range []struct {
		host, dns, ip, cn string
	}{
		{"a.example", "a.example", "", "a.example"},
		{"localhost", "localhost", "", "localhost"},
		{"xn--bcher-kva.example", "xn--bcher-kva.example", "", "xn--bcher-kva.example"},
		{"under_score.example", "under_score.example", "", "under_score.example"},
		{"7.1-2.example", "7.1-2.example", "", "7.1-2.example"},
		{long, long, "", ""}, // no room in a common name
		{"192.0.2.7", "", "192.0.2.7", "192.0.2.7"},
		{"2001:db8::7", "", "2001:db8::7", "2001:db8::7"},
		{"::ffff:192.0.2.7", "", "192.0.2.7", "::ffff:192.0.2.7"},
	} {
		t.Run(tt.host, func(t *testing.T) {
			leaf := verify(t, a, tt.host, time.Now())
			if got := strings.Join(leaf.DNSNames, ","); got != tt.dns {
				t.Errorf("DNSNames = %q, want %q", got, tt.dns)
			}
			var ips string
			for _, ip := range leaf.IPAddresses {
				ips += ip.String()
			}
			if ips != tt.ip {
				t.Errorf("IPAddresses = %q, want %q", ips, tt.ip)
			}
			if got := leaf.Subject.CommonName; got != tt.cn {
				t.Errorf("CommonName = %q, want %q", got, tt.cn)
			}
			checkProfile(t, leaf)
		})
	}
}

// checkProfile holds a leaf to what is true of all.
func checkProfile(t *testing.T, leaf *x509.Certificate) {
	t.Helper()
	if leaf.IsCA || leaf.KeyUsage != x509.KeyUsageDigitalSignature {
		t.Errorf("IsCA = %v, KeyUsage = %b; want a server's", leaf.IsCA, leaf.KeyUsage)
	}
	if len(leaf.ExtKeyUsage) != 1 || leaf.ExtKeyUsage[0] != x509.ExtKeyUsageServerAuth {
		t.Errorf("ExtKeyUsage = %v, want serverAuth alone", leaf.ExtKeyUsage)
	}
	if key, ok := leaf.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
		t.Errorf("public key: got %T, want one on P-256", leaf.PublicKey)
	}
	if leaf.SerialNumber.Sign() <= 0 || leaf.SerialNumber.BitLen() > 159 {
		t.Errorf("SerialNumber = %v, want a positive one of 20 octets (RFC 5280 section 4.1.2.2)", leaf.SerialNumber)
	}
}

func TestLeafRefuses(t *testing.T) {
	a := open(t, Options{Dir: t.TempDir()})
	for _, host := range []string{
		"", ".", "*", "*.example", "a.*.example", "a.example.", ".a.example", "a..example", "A.example", "a.exämple",
		"a b.example", "a.example:443", "a.example/", "user@a.example", "a\x00.example", "a,b.example", "a.example\n",
		strings.Repeat("a", 64) + ".example", strings.Repeat("a.", 127) + "aa", strings.Repeat("a", 70000),
		"1.2.3", "1.2.3.4.5", "256.1.1.1", "010.1.1.1", "a.example.7",
		"[::1]", "::1%eth0", "2001:DB8::7", "2001:db8:0:0::7", "0:0:0:0:0:0:0:1",
	} {
		cert, err := a.Leaf(host)
		if err == nil || cert != nil || !strings.HasPrefix(err.Error(), "certs: issuing for ") {
			t.Errorf("Leaf(%.80q) = %v, %.200v; want an error that names the act", host, cert, err)
		}
	}
	if n := a.leaves.order.Len(); n != 0 {
		t.Errorf("%d leaves are kept, want none", n)
	}
}

func TestHandshake(t *testing.T) {
	a := open(t, Options{Dir: t.TempDir()})
	roots := x509.NewCertPool()
	roots.AddCert(a.Certificate())
	for _, host := range []string{"a.example", "192.0.2.7", "2001:db8::7"} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			t.Run(host+" "+tls.VersionName(version), func(t *testing.T) {
				here, there := net.Pipe()
				done := make(chan error, 1)
				go func() { done <- serve(there, a, host) }()
				client := tls.Client(here, &tls.Config{RootCAs: roots, ServerName: host, MaxVersion: version})
				text, err := io.ReadAll(client)
				if string(text) != "hello" || err != nil {
					t.Errorf("ReadAll = %q, %v; want hello", text, err)
				}
				if n := len(client.ConnectionState().PeerCertificates); n != 2 {
					t.Errorf("a chain of %d was sent, want leaf and CA", n)
				}
				if err := <-done; err != nil {
					t.Errorf("serving: %v", err)
				}
				client.Close()
			})
		}
	}
}

func serve(conn net.Conn, a *Authority, host string) error {
	server := tls.Server(conn, &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return a.Leaf(host) }})
	if _, err := io.WriteString(server, "hello"); err != nil {
		return err
	}
	return server.Close()
}

func TestLeafAtOnce(t *testing.T) {
	a := open(t, Options{Dir: t.TempDir()})
	const hosts, callers = 20, 16
	var mu sync.Mutex
	got := make(map[string]map[*tls.Certificate]bool) // guarded by mu
	serials := make(map[string]bool)
	var wg sync.WaitGroup
	for i := range hosts {
		host := fmt.Sprintf("h%d.example", i)
		for range callers {
			wg.Go(func() {
				cert, err := a.Leaf(host)
				if err != nil {
					t.Errorf("Leaf(%q): %v", host, err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if got[host] == nil {
					got[host] = make(map[*tls.Certificate]bool)
				}
				got[host][cert] = true
			})
		}
	}
	wg.Wait()
	for host, certs := range got {
		if len(certs) != 1 {
			t.Errorf("Leaf(%q) by %d at once: %d certificates, want 1", host, callers, len(certs))
		}
		serials[leafOf(t, a, host).SerialNumber.String()] = true
	}
	if len(serials) != hosts {
		t.Errorf("%d hosts have %d serial numbers", hosts, len(serials))
	}
}

func TestRenewal(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	a := open(t, Options{Dir: t.TempDir(), Clock: func() time.Time { return now }})
	start := now
	const day = 24 * time.Hour
	first := verify(t, a, "a.example", now)
	if got, want := first.NotBefore, start.Add(-day); !got.Equal(want) {
		t.Errorf("NotBefore = %v, want %v", got, want)
	}
	if got, want := first.NotAfter, start.Add(7*day); !got.Equal(want) {
		t.Errorf("NotAfter = %v, want %v", got, want)
	}
	serial := first.SerialNumber
	for _, tt := range []struct {
		name  string
		at    time.Duration
		fresh bool
	}{
		{"young", day, false},
		{"a third of its life is left", 7 * day * 2 / 3, true},
		{"the next is young", 7*day*2/3 + day, false},
		{"long ended", 100 * day, true},
		{"the clock was set back a little", 100*day - time.Hour, false},
		{"the clock was set back to before it began", 50 * day, true},
	} {
		now = start.Add(tt.at)
		leaf := verify(t, a, "a.example", now)
		if got := leaf.SerialNumber.Cmp(serial) != 0; got != tt.fresh {
			t.Errorf("%s: a fresh certificate %v, want %v", tt.name, got, tt.fresh)
		}
		serial = leaf.SerialNumber
	}
	if n := a.leaves.order.Len(); n != 1 {
		t.Errorf("%d leaves are kept for one host", n)
	}
}

// A monotonic reading would stand still while the machine sleeps, and with it the age of what is kept.
func TestTimeIsOfTheWall(t *testing.T) {
	a := open(t, Options{Dir: t.TempDir()})
	if now := a.now().String(); strings.Contains(now, "m=") {
		t.Errorf("now() = %s, want it without a monotonic reading", now)
	}
}

// Leaves end with their CA, at the latest, and near its end they are still kept rather than signed for each call.
func TestCAEnds(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := caTemplate()
	o := ownCA(t, key, pem.EncodeToMemory(pkcs8(t, key)), template)
	var now time.Time
	o.Clock = func() time.Time { return now }
	now = template.NotAfter.Add(-time.Hour)
	a := open(t, o)
	leaf := verify(t, a, "a.example", now)
	if !leaf.NotAfter.Equal(a.Certificate().NotAfter) {
		t.Errorf("NotAfter = %v, want the CA's, %v", leaf.NotAfter, a.Certificate().NotAfter)
	}
	now = now.Add(30 * time.Minute)
	if again := leafOf(t, a, "a.example"); !again.Equal(leaf) {
		t.Error("half an hour before its CA's end a leaf was signed again, with more than a third of its life left")
	}
	now = template.NotAfter.Add(time.Second)
	if cert, err := a.Leaf("b.example"); err == nil || !strings.Contains(err.Error(), "ended on") {
		t.Errorf("Leaf after the CA's end = %v, %v; want an error that says so", cert, err)
	}
}

func TestLeavesForgetTheOldest(t *testing.T) {
	now, issuer := time.Now(), caTemplate()
	keptLeaf := func(host string, der int) *leaf {
		cert := &tls.Certificate{Certificate: [][]byte{make([]byte, der)}}
		return &leaf{host: host, issuer: issuer, cert: cert, from: now, renew: now.Add(time.Hour)}
	}
	l := newLeaves(3 * keptLeaf("a", 500).size())
	keep := func(host string) { l.add(keptLeaf(host, 500)) }
	for _, host := range []string{"a", "b", "c"} {
		keep(host)
	}
	l.get("a", issuer, now) // "b" is the oldest now
	keep("c")               // no fourth
	keep("d")
	for host, want := range map[string]bool{"a": true, "b": false, "c": true, "d": true} {
		if got := l.get(host, issuer, now) != nil; got != want {
			t.Errorf("get(%q): kept %v, want %v", host, got, want)
		}
	}
	if len(l.byHost) != 3 || l.order.Len() != 3 {
		t.Errorf("%d by host, %d in order; want 3", len(l.byHost), l.order.Len())
	}
	l.add(keptLeaf("d", 501)) // too large beside two others
	if len(l.byHost) != 2 || l.get("d", issuer, now) == nil || l.bytes > l.maxBytes {
		t.Errorf("%d leaves of %d bytes are kept; want 2 within %d, the last one among them", len(l.byHost), l.bytes, l.maxBytes)
	}
	l.add(keptLeaf("e", 1<<20)) // larger than the cache
	if len(l.byHost) != 0 || l.order.Len() != 0 || l.bytes != 0 {
		t.Errorf("%d by host, %d in order, %d bytes; want 0", len(l.byHost), l.order.Len(), l.bytes)
	}
}

// The bytes that the cache counts are those that it takes: a full cache takes half of its limit, beside the half for the
// garbage collector.
func TestLeavesTakeWhatTheyCount(t *testing.T) {
	a := open(t, Options{Dir: t.TempDir()})
	sample, err := a.Leaf("host-00001.some.example")
	if err != nil {
		t.Fatal(err)
	}
	now, issuer := time.Now(), a.Certificate()
	live := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // the first one may have begun before the last allocation
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before, l, n := live(), newLeaves(maxLeafBytes), 0
	for ; l.order.Len() == n; n++ {
		cert := &tls.Certificate{Certificate: append([][]byte{bytes.Clone(sample.Certificate[0])}, sample.Certificate[1]), PrivateKey: a.leafKey}
		l.add(&leaf{host: fmt.Sprintf("host-%05d.some.example", n), issuer: issuer, cert: cert, from: now, renew: now})
	}
	took := live() - before
	t.Logf("%d leaves take %d bytes each", l.order.Len(), took/l.order.Len())
	if least, most := maxLeafBytes*45/100, maxLeafBytes*52/100; took < least || took > most {
		t.Errorf("a full cache takes %d bytes, want %d to %d", took, least, most)
	}
	runtime.KeepAlive(l)
}

func BenchmarkLeaf(b *testing.B) {
	a := open(b, Options{Dir: b.TempDir()})
	b.Run("kept", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := a.Leaf("a.example"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("signed", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, err := a.Leaf(fmt.Sprintf("h%d.example", i)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A crawl of 20,000 hosts comes back to each of them after all others.
func BenchmarkLeafOfManyHosts(b *testing.B) {
	a := open(b, Options{Dir: b.TempDir()})
	const hosts = 20_000
	visit := func(i int) {
		if _, err := a.Leaf(fmt.Sprintf("h%d.example", i%hosts)); err != nil {
			b.Fatal(err)
		}
	}
	for i := range hosts {
		visit(i)
	}
	signed := a.Issued()
	i := 0
	for ; b.Loop(); i++ {
		visit(i)
	}
	b.ReportMetric(float64(a.Issued()-signed)/float64(i), "signed/op")
}

func FuzzLeafTemplate(f *testing.F) {
	for _, host := range []string{"a.example", "*.a.example", "192.0.2.7", "::1", "a.example.", "A", "1.2"} {
		f.Add(host)
	}
	f.Fuzz(func(t *testing.T, host string) {
		template, err := leafTemplate(host)
		if err != nil {
			return
		}
		names := len(template.DNSNames) + len(template.IPAddresses)
		if names != 1 || len(host) > 253 || bytes.ContainsAny([]byte(host), "*%[]/@ \x00") || strings.HasSuffix(host, ".") || host != strings.ToLower(host) {
			t.Errorf("leafTemplate(%q) = %v %v, want it refused", host, template.DNSNames, template.IPAddresses)
		}
	})
}

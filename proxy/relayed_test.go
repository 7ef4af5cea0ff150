package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/policy"
)

var loopback = netip.MustParsePrefix("127.0.0.0/8")

// header2 returns a PROXY header of version 2 with the given command, family and address block.
func header2(command, family byte, block string) string {
	h := append([]byte("\r\n\r\n\x00\r\nQUIT\n"), 0x20|command, family)
	return string(binary.BigEndian.AppendUint16(h, uint16(len(block)))) + block
}

// addresses returns the address block of version 2 for source and destination.
func addresses(source, destination string) string {
	from, to := netip.MustParseAddrPort(source), netip.MustParseAddrPort(destination)
	b := append(from.Addr().AsSlice(), to.Addr().AsSlice()...)
	b = binary.BigEndian.AppendUint16(b, from.Port())
	return string(binary.BigEndian.AppendUint16(b, to.Port()))
}

// newRelayedRig starts a proxy whose clients come through load balancers at trusted.
func newRelayedRig(t *testing.T, trusted netip.Prefix, change func(*Options)) *rig {
	return newRig(t, func(o *Options) {
		o.ProxyProtocol = []netip.Prefix{trusted}
		o.Clients = []Client{
			{Client: policy.Client{Name: "v4"}, Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}},
			{Client: policy.Client{Name: "v6"}, Prefixes: []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")}},
			{Client: policy.Client{Name: "here"}, Prefixes: []netip.Prefix{loopback}},
		}
		if change != nil {
			change(o)
		}
	})
}

// TestRelayedClients sends headers of trusted load balancers, each with a request in the same segment.
func TestRelayedClients(t *testing.T) {
	r := newRelayedRig(t, loopback, nil)
	const source4, source6 = "192.0.2.7:1234", "[2001:db8::7]:1234"
	for i, row := range []struct{ name, header, client, addr string }{
		{"version 1", "PROXY TCP4 192.0.2.7 10.0.0.1 1234 3128\r\n", "v4", source4},
		{"version 1, IPv6", "PROXY TCP6 2001:db8::7 2001:db8::1 1234 3128\r\n", "v6", source6},
		{"version 1, mapped", "PROXY TCP6 ::ffff:192.0.2.7 ::ffff:10.0.0.1 1234 3128\r\n", "v4", source4},
		{"version 1, unknown", "PROXY UNKNOWN\r\n", "here", "127.0.0.1:"},
		{"version 1, unknown with addresses", "PROXY UNKNOWN 192.0.2.7 10.0.0.1 1234 3128\r\n", "here", "127.0.0.1:"},
		{"version 2", header2(1, 0x11, addresses(source4, "10.0.0.1:3128")), "v4", source4},
		{"version 2, IPv6", header2(1, 0x21, addresses(source6, "[2001:db8::1]:3128")), "v6", source6},
		{"version 2, mapped", header2(1, 0x21, addresses("[::ffff:192.0.2.7]:1234", "[::ffff:10.0.0.1]:3128")), "v4", source4},
		{"version 2 with extensions", header2(1, 0x11, addresses(source4, "10.0.0.1:3128")+"\x04\x00\x03abc"), "v4", source4},
		{"version 2, local", header2(0, 0, ""), "here", "127.0.0.1:"},
		{"version 2, local with addresses", header2(0, 0x11, addresses(source4, "10.0.0.1:3128")), "here", "127.0.0.1:"},
	} {
		c := r.raw(row.header + "GET " + r.url("http", "/page/1") + " HTTP/1.1\r\nHost: a.example\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%s: %v", row.name, err)
			continue
		}
		c.Close()
		rec := r.last(i + 1)
		if resp.StatusCode != 200 || rec.Client != row.client || !strings.HasPrefix(rec.ClientAddr, row.addr) {
			t.Errorf("%s: %s, client %q at %s; want 200, %q at %s", row.name, resp.Status, rec.Client, rec.ClientAddr, row.client, row.addr)
		}
	}
}

// TestMalformedHeaders sends what a load balancer may not. Nothing of it reaches the origin.
func TestMalformedHeaders(t *testing.T) {
	r := newRelayedRig(t, loopback, func(o *Options) { o.HeaderTimeout = 300 * time.Millisecond })
	const source = "192.0.2.7:1234"
	block := addresses(source, "10.0.0.1:3128")
	unix := string(make([]byte, 216))
	request := "GET " + r.url("http", "/page/1") + " HTTP/1.1\r\nHost: a.example\r\n\r\n"
	for i, row := range []struct{ name, bytes string }{
		{"none", request},
		{"version 1 without an end", "PROXY TCP4 192.0.2.7 10.0.0.1 1234 3128"},
		{"version 1 with LF", "PROXY TCP4 192.0.2.7 10.0.0.1 1234 3128\n" + request},
		{"version 1, too long", "PROXY TCP4 " + strings.Repeat("1", 200) + "\r\n" + request},
		{"version 1, a name", "PROXY TCP4 a.example 10.0.0.1 1234 3128\r\n" + request},
		{"version 1, a port too high", "PROXY TCP4 192.0.2.7 10.0.0.1 70000 3128\r\n" + request},
		{"version 1, a negative port", "PROXY TCP4 192.0.2.7 10.0.0.1 -1 3128\r\n" + request},
		{"version 1, IPv6 as TCP4", "PROXY TCP4 2001:db8::7 2001:db8::1 1234 3128\r\n" + request},
		{"version 1, more fields", "PROXY TCP4 192.0.2.7 10.0.0.1 1234 3128 5\r\n" + request},
		{"version 1, two spaces", "PROXY  TCP4 192.0.2.7 10.0.0.1 1234 3128\r\n" + request},
		{"version 1, UDP", "PROXY UDP4 192.0.2.7 10.0.0.1 1234 3128\r\n" + request},
		{"version 1, everywhere", "PROXY TCP4 0.0.0.0 10.0.0.1 1234 3128\r\n" + request},
		{"version 1, in lower case", "proxy tcp4 192.0.2.7 10.0.0.1 1234 3128\r\n" + request},
		{"version 1 twice", "PROXY TCP4 192.0.2.7 10.0.0.1 1234 3128\r\nPROXY TCP4 192.0.2.8 10.0.0.1 1234 3128\r\n" + request},
		{"version 2, version 3", strings.Replace(header2(1, 0x11, block), "\x21", "\x31", 1) + request},
		{"version 2, another command", header2(2, 0x11, block) + request},
		{"version 2, unspecified", header2(1, 0, "") + request},
		{"version 2, UDP", header2(1, 0x12, block) + request},
		{"version 2, another family", header2(1, 0x41, block) + request},
		{"version 2, unix", header2(1, 0x31, unix) + request},
		{"version 2, unix datagrams", header2(1, 0x32, unix) + request},
		{"version 2, too short", header2(1, 0x11, block[:11]) + request},
		{"version 2, IPv6 with IPv4 addresses", header2(1, 0x21, block) + request},
		{"version 2, too long", header2(1, 0x11, block+strings.Repeat("\x04\x00\x01a", 1<<13)) + request},
		{"version 2, cut off", header2(1, 0x11, block)[:20]},
	} {
		c := r.raw(row.bytes)
		got, err := io.ReadAll(c)
		if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 400 ") {
			t.Errorf("%s: %v, %.60q; want 400", row.name, err, got)
		}
		if rec := r.last(i + 1); rec.Reason != policy.ReasonBadRequest || rec.Status != 400 {
			t.Errorf("%s: recorded as %+v", row.name, rec)
		}
	}
	if paths := r.site.Paths("a.example"); len(paths) > 0 {
		t.Errorf("the origin received %q", paths)
	}
	r.eventually("closed connections", func() bool { return r.server.Connections() == 0 })
}

// TestLoadBalancersLookWhetherTheProxyListens connects and says nothing. That is neither recorded nor logged, and no
// other connection waits for it.
func TestLoadBalancersLookWhetherTheProxyListens(t *testing.T) {
	r := newRelayedRig(t, loopback, func(o *Options) { o.HeaderTimeout = time.Minute })
	for range 50 {
		r.raw("")
	}
	r.raw("").Close()
	c := r.raw("PROXY TCP4 192.0.2.7 10.0.0.1 1234 3128\r\nGET " + r.url("http", "/page/1") + " HTTP/1.1\r\nHost: a.example\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 200 {
		t.Errorf("beside silent connections: %v, %v", resp, err)
	}
	r.last(1)
	r.server.Close()
	if n := len(r.records.all()); n != 1 || strings.Contains(r.log.String(), "PROXY header") {
		t.Errorf("%d records, want 1; the log:\n%s", n, r.log)
	}
}

// TestHeadersOfStrangers sends PROXY headers from an address that is not trusted.
func TestHeadersOfStrangers(t *testing.T) {
	r := newRelayedRig(t, netip.MustParsePrefix("127.0.0.9/32"), nil)
	request := "GET " + r.url("http", "/page/1") + " HTTP/1.1\r\nHost: a.example\r\n\r\n"
	for _, header := range []string{
		"PROXY TCP4 192.0.2.7 10.0.0.1 1234 3128\r\n", header2(1, 0x11, addresses("192.0.2.7:1234", "10.0.0.1:3128")), header2(0, 0, ""),
	} {
		got, err := io.ReadAll(r.raw(header + request))
		if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 400 ") {
			t.Errorf("%q: %v, %.60q; want 400", header, err, got)
		}
	}
	if paths := r.site.Paths("a.example"); len(paths) > 0 {
		t.Errorf("the origin received %q", paths)
	}
	resp, err := http.ReadResponse(bufio.NewReader(r.raw(request)), nil)
	if err != nil || resp.StatusCode != 200 {
		t.Errorf("a stranger without a header: %v, %v", resp, err)
	}
	if rec := r.last(4); rec.Client != "here" {
		t.Errorf("the client of a stranger without a header is %+v", rec)
	}
}

// TestLimitsOfRelayedClients checks that the address of the header counts for connections_per_client.
func TestLimitsOfRelayedClients(t *testing.T) {
	r := newRelayedRig(t, loopback, func(o *Options) { o.Limits.ConnectionsPerClient = 1 })
	ask := func(client int) (net.Conn, int) {
		c := r.raw(fmt.Sprintf("PROXY TCP4 192.0.2.%d 10.0.0.1 1234 3128\r\nGET %s HTTP/1.1\r\nHost: a.example\r\n\r\n", client, r.url("http", "/page/1")))
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		return c, resp.StatusCode
	}
	one, first := ask(1)
	_, again := ask(1)
	_, other := ask(2)
	one.Close()
	r.eventually("a free place", func() bool { _, status := ask(1); return status == 200 })
	if first != 200 || again != 503 || other != 200 {
		t.Errorf("answered %d, %d to the same client, %d to another; want 200, 503, 200", first, again, other)
	}
}

// TestRelayedTLS has the client speak TLS after the header.
func TestRelayedTLS(t *testing.T) {
	p := newPKI(t)
	r := newRelayedRig(t, loopback, func(o *Options) {
		o.TLS = p.listener()
		o.Clients = []Client{{Client: policy.Client{Name: "ci"}, Subject: "CN=ci", Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}}
	})
	c := r.secureClient(p, p.client("ci", time.Time{}))
	c.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
		return r.raw("PROXY TCP4 192.0.2.7 10.0.0.1 1234 3128\r\n"), nil
	}
	for i, scheme := range []string{"http", "https"} {
		if resp, _ := r.get(c, r.url(scheme, "/page/1")); resp.StatusCode != 200 {
			t.Errorf("%s: %s", scheme, resp.Status)
		}
		if rec := r.last(i + 1); rec.Client != "ci" || rec.ClientAddr != "192.0.2.7:1234" {
			t.Errorf("%s: recorded as %+v", scheme, rec)
		}
	}
	direct := tls.Client(r.raw(""), &tls.Config{RootCAs: p.pool(), ServerName: "127.0.0.1"})
	if err := direct.Handshake(); err == nil {
		t.Error("a trusted peer without a header got a handshake")
	}
	if rec := r.last(3); rec.Reason != policy.ReasonBadRequest {
		t.Errorf("a handshake without a header is recorded as %+v", rec)
	}
}

// TestKeyExchange compares the key exchange of a tunnel from this machine with that of one from elsewhere, by a client
// that offers all.
func TestKeyExchange(t *testing.T) {
	r := newRelayedRig(t, loopback, nil)
	for header, want := range map[string]tls.CurveID{
		"PROXY UNKNOWN\r\n":                           tls.X25519,
		"PROXY TCP4 192.0.2.7 10.0.0.1 1234 3128\r\n": tls.X25519MLKEM768,
	} {
		authority := strings.TrimPrefix(r.url("https", ""), "https://")
		conn := r.raw(header + "CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n\r\n")
		if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%q: %v, %v", header, resp, err)
		}
		if got := r.secured(conn, "http/1.1").ConnectionState().CurveID; got != want {
			t.Errorf("%q: the tunnel has the key exchange %v, want %v", header, got, want)
		}
		conn.Close()
	}
}

package egress

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"slices"
	"testing"

	"github.com/robotsproxy/robotsproxy/internal/dnstest"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// TestPinnedRequests sends requests for one name, pinned to two addresses in turns: each goes to its own address, over
// a connection that was made to it.
func TestPinnedRequests(t *testing.T) {
	addresses := []string{"127.0.0.1", "127.0.0.2"}
	port := serveAt(t, addresses)
	transport := NewTransport(TransportOptions{Guard: loopbackGuard(t)})
	defer transport.CloseIdleConnections()
	var reused []bool
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = append(reused, info.Reused) }}
	for i := range 6 {
		ctx := Pin(httptrace.WithClientTrace(t.Context(), trace), netip.MustParseAddr(addresses[i%2]))
		req, _ := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("http://a.example:%d/", port), nil)
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if want := fmt.Sprintf("%s:%d asked for a.example:%d", addresses[i%2], port, port); string(body) != want {
			t.Errorf("request %d: %q, want %q", i, body, want)
		}
	}
	if want := []bool{false, false, true, true, true, true}; !slices.Equal(reused, want) {
		t.Errorf("connections reused: %v, want %v", reused, want)
	}
}

// serveAt serves at one port of some addresses, and answers with the address and the Host of a request.
func serveAt(t *testing.T, addresses []string) (port int) {
	t.Helper()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%v asked for %s", r.Context().Value(http.LocalAddrContextKey), r.Host)
	})
	for _, address := range addresses {
		l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", address, port))
		if err != nil {
			t.Skip(err) // no such loopback address, as on macOS
		}
		port = l.Addr().(*net.TCPAddr).Port
		s := &http.Server{Handler: handler}
		go s.Serve(l)
		t.Cleanup(func() { s.Close() })
	}
	return port
}

// loopbackGuard returns a Guard that permits loopback addresses and can resolve no name.
func loopbackGuard(t *testing.T) *Guard {
	return New(Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Resolver: dnstest.New(t).Resolver()})
}

// TestPinnedTLS checks that TLS verifies the name of a pinned request, over HTTP/2 too.
func TestPinnedTLS(t *testing.T) {
	site := robotstest.New(t)
	transport := NewTransport(TransportOptions{Guard: loopbackGuard(t), RootCAs: site.CAPool()})
	defer transport.CloseIdleConnections()
	ctx := Pin(t.Context(), netip.MustParseAddr("127.0.0.1"))
	for _, host := range []string{"a.example", "b.example"} {
		req, _ := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("https://%s:%d/page/1", host, site.TLSPort()), nil)
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if name := resp.TLS.PeerCertificates[0].DNSNames; resp.ProtoMajor != 2 || !slices.Contains(name, host) {
			t.Errorf("%s: HTTP/%d with a certificate for %v, want HTTP/2 and one for %s", host, resp.ProtoMajor, name, host)
		}
	}
}

// TestPinnedAddressIsJudged pins a request to an address that the guard prohibits.
func TestPinnedAddressIsJudged(t *testing.T) {
	guard := New(Options{Resolve: map[string]netip.Addr{"10.0.0.1": netip.MustParseAddr("93.184.215.14")}})
	_, err := guard.DialContext(Pin(t.Context(), netip.MustParseAddr("10.0.0.1")), "tcp", "a.example:80")
	if !Prohibited(err) {
		t.Errorf("dialling a pinned address that is prohibited: %v", err)
	}
}

// TestPoolsAreBounded pins requests to many addresses.
func TestPoolsAreBounded(t *testing.T) {
	const most = 128
	p := newPools(most * poolIdleConns)
	create := func() *http.Transport { return new(http.Transport) }
	often := poolKey{addr: netip.MustParseAddr("192.0.2.1")}
	kept := p.get(often, create)
	addr := netip.MustParseAddr("10.0.0.0")
	for range 3 * most {
		addr = addr.Next()
		p.get(poolKey{addr: addr}, create)
		if p.get(often, create) != kept {
			t.Fatal("the transport that is used most was dropped")
		}
		if p.order.Len() > most || len(p.byKey) != p.order.Len() {
			t.Fatalf("%d transports in an order of %d, want at most %d", len(p.byKey), p.order.Len(), most)
		}
	}
	if p.get(poolKey{addr: addr, insecure: true}, create) == p.get(poolKey{addr: addr}, create) {
		t.Error("a host whose certificate is verified shares a transport with one whose certificate is not")
	}
}

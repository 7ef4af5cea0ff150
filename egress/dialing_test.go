package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// TestDialEndsWithItsRequest cancels requests in the middle of a look-up and of a TLS handshake. By itself, net/http
// goes on with both, and a client that asks and leaves could use up the descriptors.
func TestDialEndsWithItsRequest(t *testing.T) {
	lookUp := func(began, ended chan<- struct{}) *net.Resolver {
		return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			began <- struct{}{}
			<-ctx.Done()
			ended <- struct{}{}
			return nil, ctx.Err()
		}}
	}
	for _, row := range []struct {
		name, url string
		resolver  func(began, ended chan<- struct{}) *net.Resolver
	}{
		{"look-up", "http://a.example", lookUp},
		{"look-up for TLS", "https://b.example", lookUp},
		{"TLS handshake", "", nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			began, ended := make(chan struct{}, 100), make(chan struct{}, 100) // a look-up dials several times
			var resolver *net.Resolver
			if row.resolver != nil {
				resolver = row.resolver(began, ended)
			} else {
				row.url = "https://" + startSilent(t, began, ended)
			}
			transport := NewTransport(TransportOptions{Guard: New(Options{Allow: loopback, Resolver: resolver})})
			ctx, cancel := context.WithCancel(t.Context())
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, row.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				<-began
				cancel()
			}()
			if _, err := transport.RoundTrip(req); err == nil {
				t.Fatal("RoundTrip: no error")
			}
			select {
			case <-ended:
			case <-time.After(3 * time.Second): // a look-up ends by itself after 5 s, a handshake after 10
				t.Error("it goes on after its request has ended")
				<-ended
			}
		})
	}
}

// startSilent starts a server that answers nothing, and returns its address.
func startSilent(t *testing.T, began, ended chan<- struct{}) string {
	t.Helper()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	go func() {
		for {
			conn, err := silent.Accept()
			if err != nil {
				return
			}
			io.ReadFull(conn, make([]byte, 1))
			began <- struct{}{}
			io.Copy(io.Discard, conn)
			conn.Close()
			ended <- struct{}{}
		}
	}()
	return silent.Addr().String()
}

// TestConnectionOutlivesItsRequest ends a request after its response. The next one uses the same connection.
func TestConnectionOutlivesItsRequest(t *testing.T) {
	for _, http2 := range []bool{true, false} {
		var opened atomic.Int32
		site := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		site.EnableHTTP2 = http2
		site.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				opened.Add(1)
			}
		}
		site.StartTLS()
		defer site.Close()
		transport := siteTransport(site)
		defer transport.CloseIdleConnections()
		for range 5 {
			ctx, cancel := context.WithCancel(t.Context())
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, site.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			cancel()
			if http2 != (resp.ProtoMajor == 2) {
				t.Errorf("the response came by %s", resp.Proto)
			}
		}
		if got := opened.Load(); got != 1 {
			t.Errorf("5 requests took %d connections (HTTP/2: %t), want 1", got, http2)
		}
	}
}

// siteTransport returns a Transport that reaches site and trusts its certificate.
func siteTransport(site *httptest.Server) *Transport {
	roots := x509.NewCertPool()
	roots.AddCert(site.Certificate())
	return NewTransport(TransportOptions{Guard: New(Options{Allow: loopback}), RootCAs: roots})
}

// TestUnreadBodyIsBounded has an origin send a body by HTTP/2 that is not read. Little of it is kept in memory
// meanwhile.
func TestUnreadBodyIsBounded(t *testing.T) {
	var sent atomic.Int64
	site := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for part := make([]byte, 4096); ; sent.Add(int64(len(part))) {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	}))
	site.EnableHTTP2 = true
	site.StartTLS()
	defer site.Close()
	transport := siteTransport(site)
	resp, err := (&http.Client{Transport: transport}).Get(site.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.ProtoMajor != 2 {
		t.Fatalf("the response came by %s", resp.Proto)
	}
	for before := int64(-1); sent.Load() != before; time.Sleep(300 * time.Millisecond) {
		before = sent.Load()
	}
	if got := sent.Load(); got > 300<<10 {
		t.Errorf("the origin could send %d KiB of an unread body, want 300 at most", got>>10)
	}
}

// TestEndAtHandshake ends a request after the handshake of its connection and before http.Transport says so. The
// connection may serve another request by then.
func TestEndAtHandshake(t *testing.T) {
	request, end := context.WithCancel(context.Background())
	d := &dialing{request: request, secure: true}
	conn, far := net.Pipe()
	t.Cleanup(func() { conn.Close(); far.Close() })
	d.closeWithRequest(conn)
	end()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a handshake after the end of the request: %v, want a time-out", err)
	}
	d.handshakeDone(tls.ConnectionState{}, nil)
	go far.Write([]byte("x"))
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Errorf("the connection of another request: %v", err)
	}
}

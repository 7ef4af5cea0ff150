package egress

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Connections to origins that no request uses are bounded, for each host and in all: a wide crawl may not hold a socket
// for each host that it has seen.
func TestIdleConnectionsToOriginsAreBounded(t *testing.T) {
	for configured, want := range map[int]int64{0: 512, 100: 100} {
		t.Run(fmt.Sprint(configured), func(t *testing.T) { testIdleConnections(t, configured, want) })
	}
}

func testIdleConnections(t *testing.T, configured int, inAll int64) {
	const hosts, perHost = 600, 32
	var open atomic.Int64
	var together sync.WaitGroup // those whose host is "many" answer at once, so that each has its connection
	site := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/together" {
			together.Done()
			together.Wait()
		}
	}))
	site.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}
	site.Start()
	defer site.Close()
	port := site.Listener.Addr().(*net.TCPAddr).Port
	resolve := make(map[string]netip.Addr)
	for i := range hosts {
		resolve[fmt.Sprintf("h%d.example", i)] = netip.MustParseAddr("127.0.0.1")
	}
	transport := NewTransport(TransportOptions{IdleConns: configured, Guard: New(Options{
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Resolve: resolve,
	})})
	ask := func(host int, path string) {
		resp, err := (&http.Client{Transport: transport}).Get(fmt.Sprintf("http://h%d.example:%d%s", host, port, path))
		if err != nil {
			t.Error(err)
			return
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	settle := func(most int64) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); open.Load() > most; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d connections stay open, want no more than %d", open.Load(), most)
			}
		}
	}

	together.Add(2 * perHost)
	var asked sync.WaitGroup
	for range 2 * perHost {
		asked.Go(func() { ask(0, "/together") })
	}
	asked.Wait()
	settle(perHost)
	for i := range hosts {
		ask(i, "/")
	}
	settle(inAll)
	if n := open.Load(); n < inAll-1 {
		t.Errorf("%d connections are kept, so the bound of %d was not met", n, inAll)
	}
	transport.CloseIdleConnections()
	settle(0)
}

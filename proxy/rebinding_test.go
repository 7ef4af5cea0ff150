package proxy

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/robotsproxy/robotsproxy/egress"
	"github.com/robotsproxy/robotsproxy/internal/dnstest"
)

// newRigBeside returns a rig, and a listener with the port of its site at another address. The port may be taken there, so
// it tries several.
func newRigBeside(t *testing.T, change func(*Options)) (*rig, net.Listener) {
	t.Helper()
	for try := 1; ; try++ {
		r := newRig(t, change)
		l, err := net.Listen("tcp", "127.0.0.2:"+strconv.Itoa(r.site.Port()))
		if err == nil {
			return r, l
		}
		if try == 5 {
			t.Fatal(err)
		}
	}
}

// The whole way: robots.txt and pages of a name that changes its address reach only what is allowed.
func TestRebindingThroughTheProxy(t *testing.T) {
	names := dnstest.New(t)
	r, prohibited := newRigBeside(t, func(o *Options) {
		o.Guard = egress.New(egress.Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, Resolver: names.Resolver()})
		transport := &http.Transport{DialContext: o.Guard.DialContext, DisableKeepAlives: true} // each request is dialled
		o.Transport, o.Snapshots = transport, (&rig{t: t}).newCache(transport)
	})
	var came atomic.Int64
	go func() {
		for {
			c, err := prohibited.Accept()
			if err != nil {
				return
			}
			came.Add(1)
			c.Close()
		}
	}()
	t.Cleanup(func() { prohibited.Close() })
	names.Set("rebind.example", []string{"127.0.0.1"}, []string{"127.0.0.1"}, []string{"127.0.0.2"})
	names.Set("cold.example", []string{"127.0.0.2"}, []string{"127.0.0.1"})
	c := r.client(true)
	for i, want := range []string{"200 ", "403 egress", "403 egress"} { // the first after the fetch of robots.txt
		resp, _ := r.get(c, fmt.Sprintf("http://rebind.example:%d/page/1", r.site.Port()))
		if got := fmt.Sprintf("%d %s", resp.StatusCode, resp.Header.Get("Robotsproxy-Reason")); got != want {
			t.Errorf("request %d: %s, want %s", i+1, got, want)
		}
	}
	if resp, _ := r.get(c, fmt.Sprintf("http://cold.example:%d/page/1", r.site.Port())); resp.Header.Get("Robotsproxy-Reason") != "egress" {
		t.Errorf("a robots.txt at an address that is not allowed: %s %v", resp.Status, resp.Header)
	}
	if n := came.Load(); n > 0 {
		t.Errorf("the address that is not allowed saw %d connections", n)
	}
}

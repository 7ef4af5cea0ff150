package egress

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/robotsproxy/robotsproxy/origin"
)

// TestResolvePatterns checks which entry of Options.Resolve counts for a host, through Check and through DialContext.
func TestResolvePatterns(t *testing.T) {
	all := map[string]netip.Addr{
		"a.example":       netip.MustParseAddr("10.0.0.1"),
		"*.example":       netip.MustParseAddr("10.0.0.2"),
		"*.b.example":     netip.MustParseAddr("10.0.0.3"),
		"deep.b.example":  netip.MustParseAddr("10.0.0.4"),
		"*.xn--bcher-kva": netip.MustParseAddr("10.0.0.5"),
		"192.0.2.1":       netip.MustParseAddr("10.0.0.6"),
		"*":               netip.MustParseAddr("10.0.0.9"),
	}
	for host, want := range map[string]string{
		"a.example":          "10.0.0.1",
		"x.a.example":        "10.0.0.2", // a host is not a pattern for those below it
		"example":            "10.0.0.9", // nor is a pattern one for its own name
		"b.example":          "10.0.0.2",
		"x.b.example":        "10.0.0.3",
		"y.x.b.example":      "10.0.0.3",
		"deep.b.example":     "10.0.0.4",
		"xb.example":         "10.0.0.2",
		"a.bücher":           "10.0.0.5",
		"other.test":         "10.0.0.9",
		"192.0.2.1":          "10.0.0.6",
		"64:ff9b::c000:201":  "10.0.0.6",
		"::ffff:192.0.2.1":   "10.0.0.6",
		"93.184.215.14":      "", // a pattern is for names
		"64:ff9b::5db8:d70e": "",
	} {
		host, err := origin.Host(host)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := New(Options{Resolve: all}).mappedAddr(host)
		if ok != (want != "") || ok && got.String() != want {
			t.Errorf("%s is mapped to %v, %t; want %q", host, got, ok, want)
		}
		o, err := origin.New("http", host, 80)
		if err != nil {
			t.Fatal(err)
		}
		if err := New(Options{Resolve: all}).Check(o); Prohibited(err) != (want != "") {
			t.Errorf("Check(%v) = %v, although 10.0.0.0/8 is private and 93.184.215.14 is not", o, err)
		}
	}
	if _, ok := New(Options{Resolve: map[string]netip.Addr{"*.example": {}}}).mappedAddr("example.test"); ok {
		t.Error("a host that no pattern matches is mapped")
	}
}

// TestInsecureHostsPatterns requests hosts whose certificate is for another name.
func TestInsecureHostsPatterns(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.StartTLS()
	defer server.Close()
	port := netip.MustParseAddrPort(server.Listener.Addr().String()).Port()
	transport := NewTransport(TransportOptions{
		Guard: New(Options{
			Allow:   []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
			Resolve: map[string]netip.Addr{"*": netip.MustParseAddr("127.0.0.1")},
		}),
		InsecureHosts: []string{"one.test", "*.below.test"},
	})
	defer transport.CloseIdleConnections()
	for host, want := range map[string]bool{
		"one.test": true, "x.one.test": false, "a.below.test": true, "below.test": false, "other.test": false,
	} {
		o, err := origin.New("https", host, port)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: transport}).Get(o.String() + "/")
		if err == nil {
			resp.Body.Close()
		}
		if (err == nil) != want {
			t.Errorf("GET %v: %v, want a response: %t", o, err, want)
		}
	}
}

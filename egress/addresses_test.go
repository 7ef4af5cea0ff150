package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/dnstest"
	"github.com/robotsproxy/robotsproxy/origin"
)

func mustOrigin(t *testing.T, s string) origin.Origin {
	t.Helper()
	o, err := origin.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{Allow: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")}})
		a := NewAddresses(g)
		looked := 0
		a.lookUp = func(_ context.Context, addr string) ([]netip.AddrPort, error) {
			looked++
			if addr == "none.example:80" {
				return nil, &net.DNSError{IsNotFound: true}
			}
			set := map[string][]string{
				"a.example:80":          {"192.0.2.3", "192.0.2.2", "192.0.2.4"},
				"six.example:80":        {"2001:db8::2", "192.0.2.2", "2001:db8::1"},
				"nat64.example:80":      {"64:ff9b::c000:201"},
				"some.example:80":       {"10.0.0.1", "192.0.2.9"},
				"prohibited.example:80": {"10.0.0.2", "10.0.0.1"},
			}[addr]
			var all []netip.AddrPort
			for i := range set {
				next := set[(i+looked)%len(set)]
				if addr == "six.example:80" {
					next = set[i] // the order of families is the resolver's
				}
				all = append(all, netip.AddrPortFrom(netip.MustParseAddr(next), 80))
			}
			return all, nil
		}
		of := func(host, want string) {
			t.Helper()
			if got, err := a.Of(t.Context(), mustOrigin(t, "http://"+host)); err != nil || got.String() != want {
				t.Errorf("Of(%s) = %v, %v; want %s", host, got, err, want)
			}
		}
		for range 3 { // the addresses come in another order each time
			of("a.example", "192.0.2.2")
			of("six.example", "2001:db8::1")
			of("nat64.example", "64:ff9b::c000:201")
			of("some.example", "192.0.2.9")
		}
		var dns *net.DNSError
		if _, err := a.Of(t.Context(), mustOrigin(t, "http://none.example")); !errors.As(err, &dns) {
			t.Errorf("Of(none.example): %v, want a *net.DNSError", err)
		}
		if _, err := a.Of(t.Context(), mustOrigin(t, "http://prohibited.example")); !Prohibited(err) {
			t.Errorf("Of(prohibited.example): %v, want a *ProhibitedError", err)
		}
		time.Sleep(time.Hour)
		last, ok := a.Last("a.example")
		if _, known := a.Last("none.example"); known || !ok || last.String() != "192.0.2.2" {
			t.Errorf("Last(a.example) = %v, %t; Last(none.example) = _, %t; want 192.0.2.2, true; _, false", last, ok, known)
		}
		for i := range lastAddresses + 10 {
			a.keep(a.guard, fmt.Sprint(i), netip.Addr{})
		}
		if len(a.last) > lastAddresses {
			t.Errorf("%d addresses are remembered, want at most %d", len(a.last), lastAddresses)
		}
	})
}

// TestAddressesReload checks that an address of another Guard is not kept, even if it was looked up during the Reload.
func TestAddressesReload(t *testing.T) {
	with := func(addr string) *Guard {
		return New(Options{
			Allow:   []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
			Resolve: map[string]netip.Addr{"a.example": netip.MustParseAddr(addr)},
		})
	}
	first, second := with("127.0.0.1"), with("127.0.0.2")
	a := NewAddresses(first)
	for _, step := range []struct{ guard, want string }{{"", "127.0.0.1"}, {"second", "127.0.0.2"}} {
		if step.guard != "" {
			a.Reload(second)
			a.keep(first, "a.example", netip.MustParseAddr("127.0.0.1"))
		}
		if got, err := a.Of(t.Context(), mustOrigin(t, "http://a.example")); err != nil || got.String() != step.want {
			t.Errorf("Of = %v, %v; want %s", got, err, step.want)
		}
	}
}

// TestAddressesAsTheGuardDials checks that hosts without a look-up have the addresses that the guard dials.
func TestAddressesAsTheGuardDials(t *testing.T) {
	names := dnstest.New(t)
	names.Set("a.example", []string{"192.0.2.2", "192.0.2.1"})
	g := New(Options{
		Allow:    []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
		Resolve:  map[string]netip.Addr{"mapped.example": netip.MustParseAddr("127.0.0.1")},
		Resolver: names.Resolver(),
	})
	a := NewAddresses(g)
	for url, want := range map[string]string{
		"http://a.example":              "192.0.2.1",
		"http://mapped.example":         "127.0.0.1",
		"http://192.0.2.9":              "192.0.2.9",
		"http://[2001:db8::9]":          "2001:db8::9",
		"http://[::ffff:192.0.2.9]":     "192.0.2.9",
		"http://[64:ff9b::c000:209]":    "64:ff9b::c000:209",
		"https://mapped.example:8443/x": "127.0.0.1",
	} {
		if got, err := a.Of(t.Context(), mustOrigin(t, url)); err != nil || got.String() != want {
			t.Errorf("Of(%s) = %v, %v; want %s", url, got, err, want)
		}
	}
}

// A client that leaves while its host is resolved says nothing about the host.
func TestAddressesOfClientsThatLeft(t *testing.T) {
	a := NewAddresses(New(Options{Allow: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}}))
	a.lookUp = func(ctx context.Context, _ string) ([]netip.AddrPort, error) {
		return []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:80")}, ctx.Err()
	}
	o := mustOrigin(t, "http://a.example")
	gone, leave := context.WithCancel(t.Context())
	leave()
	if got, err := a.Of(gone, o); !errors.Is(err, context.Canceled) {
		t.Errorf("Of = %v, %v for a client that has left, want the end of its context", got, err)
	}
	if got, err := a.Of(t.Context(), o); err != nil || got.String() != "192.0.2.1" {
		t.Errorf("Of = %v, %v for the next client, want 192.0.2.1", got, err)
	}
}

// A name whose address does not answer is looked up again, also for Addresses: its site may have moved.
func TestAddressesOfASiteThatMoves(t *testing.T) {
	site, _ := listenOn(t, "127.0.0.2:0")
	names := dnstest.New(t)
	names.Set("moves.example", []string{"127.0.0.3"}, []string{"127.0.0.2"})
	g := New(Options{Allow: loopback, Resolver: names.Resolver(), KeepNames: time.Minute})
	a, addr := NewAddresses(g), fmt.Sprintf("moves.example:%d", site.Addr().(*net.TCPAddr).Port)
	for i, want := range []string{"127.0.0.3", "127.0.0.2", "127.0.0.2"} {
		to, err := a.Of(t.Context(), mustOrigin(t, "http://"+addr))
		if err != nil || to.String() != want {
			t.Fatalf("Of, call %d: %v, %v; want %s", i+1, to, err, want)
		}
		c, err := g.DialContext(Pin(t.Context(), to), "tcp", addr)
		if err == nil {
			c.Close()
		}
		if (err == nil) != (i > 0) {
			t.Errorf("dial %d: %v", i+1, err)
		}
	}
	if n := names.Questions("moves.example"); n != 2 {
		t.Errorf("%d questions, want 2", n)
	}
}

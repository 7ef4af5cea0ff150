package egress

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
)

func TestAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mapped := netip.MustParseAddr("127.0.0.1")
		a := NewAddresses(New(Options{Resolve: map[string]netip.Addr{"mapped.example": mapped}}))
		looked := 0
		a.lookUp = func(_ context.Context, _, host string) ([]netip.Addr, error) {
			looked++
			if host == "none.example" {
				return nil, errors.New("no such host")
			}
			if host == "nat64.example" {
				return []netip.Addr{netip.MustParseAddr("64:ff9b::c000:201")}, nil
			}
			set := []netip.Addr{netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.1")}
			return append(set[looked%3:], set[:looked%3]...), nil
		}
		of := func(url, want string) {
			t.Helper()
			o, err := origin.Parse(url)
			if err != nil {
				t.Fatal(err)
			}
			if got := a.Of(t.Context(), o); got.String() != want {
				t.Errorf("Of(%s) = %v, want %s", url, got, want)
			}
		}
		of("http://mapped.example", "127.0.0.1")
		of("http://192.0.2.9", "192.0.2.9")
		of("http://[2001:db8::9]", "2001:db8::9")
		of("http://[::ffff:192.0.2.9]", "192.0.2.9")
		of("http://[64:ff9b::c000:209]", "192.0.2.9")
		if looked != 0 {
			t.Errorf("%d names were looked up where none was needed", looked)
		}
		for range 3 { // the set comes in another order each time
			of("http://a.example", "192.0.2.1")
			of("http://none.example", "invalid IP")
			of("http://nat64.example", "192.0.2.1")
			time.Sleep(addressTTL / 2)
		}
		if looked != 6 {
			t.Errorf("%d look-ups, want one a minute for each of three names: 6", looked)
		}
		for range knownAddresses + 10 {
			a.keep(time.Now().String(), address{})
			time.Sleep(time.Nanosecond)
		}
		if len(a.known) > knownAddresses {
			t.Errorf("%d addresses are remembered, want at most %d", len(a.known), knownAddresses)
		}
	})
}

// A client that leaves while its host is looked up says nothing about the host.
func TestAddressesOfClientsThatLeft(t *testing.T) {
	a := NewAddresses(New(Options{}))
	a.lookUp = func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, ctx.Err()
	}
	o, err := origin.Parse("http://a.example")
	if err != nil {
		t.Fatal(err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if got := a.Of(gone, o); got.IsValid() {
		t.Errorf("Of = %v for a client that has left, want none", got)
	}
	if got := a.Of(t.Context(), o); got.String() != "192.0.2.1" {
		t.Errorf("Of = %v for the next client, want 192.0.2.1", got)
	}
}

package proxy

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/origin"
)

func TestEgressAddresses(t *testing.T) {
	prefix := netip.MustParsePrefix
	for _, row := range []struct {
		name    string
		options EgressOptions
		addr    string
		allowed bool
	}{
		{"public", EgressOptions{}, "93.184.215.14:80", true},
		{"public IPv6", EgressOptions{}, "[2606:2800:21f:cb07:6820:80da:af6b:8b2c]:443", true},
		{"loopback", EgressOptions{}, "127.0.0.1:80", false},
		{"loopback, another one", EgressOptions{}, "127.8.9.1:80", false},
		{"IPv6 loopback", EgressOptions{}, "[::1]:80", false},
		{"unspecified", EgressOptions{}, "0.0.0.0:80", false},
		{"private 10/8", EgressOptions{}, "10.1.2.3:80", false},
		{"private 172.16/12", EgressOptions{}, "172.31.255.1:80", false},
		{"private 192.168/16", EgressOptions{}, "192.168.1.1:80", false},
		{"link-local and cloud metadata", EgressOptions{}, "169.254.169.254:80", false},
		{"CGNAT", EgressOptions{}, "100.64.0.1:80", false},
		{"multicast", EgressOptions{}, "224.0.0.1:80", false},
		{"broadcast", EgressOptions{}, "255.255.255.255:80", false},
		{"unique local IPv6", EgressOptions{}, "[fd00::1]:80", false},
		{"link-local IPv6", EgressOptions{}, "[fe80::1]:80", false},
		{"IPv4-mapped loopback", EgressOptions{}, "[::ffff:127.0.0.1]:80", false},
		{"IPv4-mapped public", EgressOptions{}, "[::ffff:93.184.215.14]:80", true},
		{"NAT64 of loopback", EgressOptions{}, "[64:ff9b::7f00:1]:80", false},
		{"NAT64 of a public address", EgressOptions{}, "[64:ff9b::5db8:d70e]:80", true},
		{"6to4 of loopback", EgressOptions{}, "[2002:7f00:1::1]:80", false},
		{"Teredo", EgressOptions{}, "[2001:0:4136:e378::1]:80", false},
		{"port of mail", EgressOptions{}, "93.184.215.14:25", false},
		{"unregistered port", EgressOptions{}, "93.184.215.14:8080", true},
		{"only the ports that are listed", EgressOptions{Ports: []PortRange{{443, 443}}}, "93.184.215.14:80", false},
		{"allowed private", EgressOptions{Allow: []netip.Prefix{prefix("10.0.0.0/8")}}, "10.1.2.3:80", true},
		{"allowed in its mapped form", EgressOptions{Allow: []netip.Prefix{prefix("10.0.0.0/8")}}, "[::ffff:10.1.2.3]:80", true},
		{"denied goes before allowed", EgressOptions{Allow: []netip.Prefix{prefix("10.0.0.0/8")}, Deny: []netip.Prefix{prefix("10.1.0.0/16")}}, "10.1.2.3:80", false},
		{"denied public", EgressOptions{Deny: []netip.Prefix{prefix("93.184.215.0/24")}}, "93.184.215.14:80", false},
		{"denied in its NAT64 form", EgressOptions{Deny: []netip.Prefix{prefix("93.184.215.0/24")}}, "[64:ff9b::5db8:d70e]:80", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			err := NewEgress(row.options).control("tcp", row.addr, nil)
			if (err == nil) != row.allowed || err != nil && !Prohibited(err) {
				t.Errorf("dialling %s under %+v: %v, want allowed=%t", row.addr, row.options, err, row.allowed)
			}
		})
	}
}

func TestEgressNeverReachesOurselves(t *testing.T) {
	e := NewEgress(EgressOptions{Allow: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}})
	e.Protect(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 3128})
	e.Protect(&net.TCPAddr{IP: net.IPv6unspecified, Port: 3129})
	for addr, allowed := range map[string]bool{
		"127.0.0.1:3128": false, "[::ffff:127.0.0.1]:3128": false, "0.0.0.0:3128": false, "127.0.0.2:3128": true,
		"127.0.0.1:3129": false, "[::1]:3129": false, "93.184.215.14:3129": true, "127.0.0.1:8080": true,
	} {
		if err := e.control("tcp", addr, nil); (err == nil) != allowed {
			t.Errorf("dialling %s: %v, want allowed=%t", addr, err, allowed)
		}
	}
}

func TestEgressCheckBeforeResolving(t *testing.T) {
	e := NewEgress(EgressOptions{Resolve: map[string]netip.Addr{"mapped.example": netip.MustParseAddr("127.0.0.1")}})
	for url, allowed := range map[string]bool{
		"http://a.example": true, "http://a.example:25": false, "http://127.0.0.1": false, "https://[::1]": false, "http://mapped.example": false,
	} {
		o, err := origin.Parse(url)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Check(o); (err == nil) != allowed {
			t.Errorf("Check(%s) = %v, want allowed=%t", url, err, allowed)
		}
	}
}

// The name is resolved by the dialler itself, and the guard sees what it resolved to.
func TestEgressDialsWhatItChecked(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if _, err := NewEgress(EgressOptions{}).DialContext(context.Background(), "tcp", "localhost:"+port); !Prohibited(err) {
		t.Errorf("dialling localhost = %v, want a ProhibitedError", err)
	}
	allow := EgressOptions{
		Allow:   []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Resolve: map[string]netip.Addr{"a.example": netip.MustParseAddr("127.0.0.1")},
	}
	c, err := NewEgress(allow).DialContext(context.Background(), "tcp", "a.example:"+port)
	if err != nil {
		t.Fatalf("dialling a name that resolve maps: %v", err)
	}
	c.Close()
	if _, err := NewEgress(EgressOptions{}).DialContext(context.Background(), "tcp", "a.example"); err == nil || !strings.Contains(err.Error(), "missing port") {
		t.Errorf("dialling without a port = %v", err)
	}
}

package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/robotsproxy/robotsproxy/internal/dnstest"
	"github.com/robotsproxy/robotsproxy/origin"
)

func TestGuardAddresses(t *testing.T) {
	prefix := netip.MustParsePrefix
	for _, row := range []struct {
		name    string
		options Options
		addr    string
		allowed bool
	}{
		{"public", Options{}, "93.184.215.14:80", true},
		{"public IPv6", Options{}, "[2606:2800:21f:cb07:6820:80da:af6b:8b2c]:443", true},
		{"loopback", Options{}, "127.0.0.1:80", false},
		{"loopback, another one", Options{}, "127.8.9.1:80", false},
		{"IPv6 loopback", Options{}, "[::1]:80", false},
		{"unspecified", Options{}, "0.0.0.0:80", false},
		{"private 10/8", Options{}, "10.1.2.3:80", false},
		{"private 172.16/12", Options{}, "172.31.255.1:80", false},
		{"private 192.168/16", Options{}, "192.168.1.1:80", false},
		{"link-local and cloud metadata", Options{}, "169.254.169.254:80", false},
		{"CGNAT", Options{}, "100.64.0.1:80", false},
		{"multicast", Options{}, "224.0.0.1:80", false},
		{"broadcast", Options{}, "255.255.255.255:80", false},
		{"unique local IPv6", Options{}, "[fd00::1]:80", false},
		{"link-local IPv6", Options{}, "[fe80::1]:80", false},
		{"IPv4-mapped loopback", Options{}, "[::ffff:127.0.0.1]:80", false},
		{"IPv4-mapped public", Options{}, "[::ffff:93.184.215.14]:80", true},
		{"NAT64 of loopback", Options{}, "[64:ff9b::7f00:1]:80", false},
		{"NAT64 of a public address", Options{}, "[64:ff9b::5db8:d70e]:80", true},
		{"NAT64 of cloud metadata", Options{}, "[64:ff9b::a9fe:a9fe]:80", false},
		{"NAT64 of a private address", Options{}, "[64:ff9b::a01:203]:80", false},
		{"NAT64 for local use", Options{}, "[64:ff9b:1::5db8:d70e]:80", false},
		{"IPv4-compatible loopback", Options{}, "[::127.0.0.1]:80", false},
		{"IPv4-translated loopback", Options{}, "[::ffff:0:7f00:1]:80", false},
		{"IPv4-mapped cloud metadata", Options{}, "[::ffff:169.254.169.254]:80", false},
		{"IPv6 unspecified", Options{}, "[::]:80", false},
		{"IPv6 cloud metadata of AWS", Options{}, "[fd00:ec2::254]:80", false},
		{"link-local IPv6 with a zone", Options{}, "[fe80::1%lo]:80", false},
		{"site-local IPv6", Options{}, "[fec0::1]:80", false},
		{"multicast IPv6", Options{}, "[ff02::1]:80", false},
		{"discard-only IPv6", Options{}, "[100::1]:80", false},
		{"this network", Options{}, "0.1.2.3:80", false},
		{"reserved", Options{}, "240.0.0.1:80", false},
		{"benchmarking", Options{}, "198.18.0.1:80", false},
		{"documentation", Options{}, "192.0.2.1:80", false},
		{"cloud metadata of Alibaba, in CGNAT", Options{}, "100.100.100.200:80", false},
		{"6to4 of loopback", Options{}, "[2002:7f00:1::1]:80", false},
		{"6to4 of a public address", Options{}, "[2002:5db8:d70e::1]:80", false},
		{"IPv6 documentation", Options{}, "[2001:db8::1]:80", false},
		{"Teredo", Options{}, "[2001:0:4136:e378::1]:80", false},
		{"port of mail", Options{}, "93.184.215.14:25", false},
		{"unregistered port", Options{}, "93.184.215.14:8080", true},
		{"only the ports that are listed", Options{Ports: []PortRange{{443, 443}}}, "93.184.215.14:80", false},
		{"allowed private", Options{Allow: []netip.Prefix{prefix("10.0.0.0/8")}}, "10.1.2.3:80", true},
		{"allowed in its mapped form", Options{Allow: []netip.Prefix{prefix("10.0.0.0/8")}}, "[::ffff:10.1.2.3]:80", true},
		{"denied goes before allowed", Options{Allow: []netip.Prefix{prefix("10.0.0.0/8")}, Deny: []netip.Prefix{prefix("10.1.0.0/16")}}, "10.1.2.3:80", false},
		{"denied public", Options{Deny: []netip.Prefix{prefix("93.184.215.0/24")}}, "93.184.215.14:80", false},
		{"denied in its NAT64 form", Options{Deny: []netip.Prefix{prefix("93.184.215.0/24")}}, "[64:ff9b::5db8:d70e]:80", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			err := New(row.options).control("tcp", row.addr, nil)
			if (err == nil) != row.allowed || err != nil && !Prohibited(err) {
				t.Errorf("dialling %s under %+v: %v, want allowed=%t", row.addr, row.options, err, row.allowed)
			}
		})
	}
}

func TestGuardNeverReachesOurselves(t *testing.T) {
	e := New(Options{Allow: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}})
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

// TestGuardWith checks that the Guards that With returns share their listeners, also those to come.
func TestGuardWith(t *testing.T) {
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	first := New(Options{Allow: loopback})
	first.Protect(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 3128})
	second := first.With(Options{Deny: []netip.Prefix{netip.MustParsePrefix("93.184.215.14/32")}})
	third := second.With(Options{Allow: loopback, Ports: []PortRange{{8080, 8080}}})
	third.Protect(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080})
	for _, row := range []struct {
		guard   *Guard
		addr    string
		allowed bool
	}{
		{first, "127.0.0.1:8081", true},
		{first, "127.0.0.1:3128", false},
		{first, "127.0.0.1:8080", false},
		{first, "93.184.215.14:80", true},
		{second, "93.184.215.14:80", false},
		{second, "127.0.0.1:8081", false},
		{third, "127.0.0.2:8080", true},
		{third, "127.0.0.1:8080", false},
		{third, "93.184.215.14:80", false},
	} {
		if err := row.guard.control("tcp", row.addr, nil); (err == nil) != row.allowed {
			t.Errorf("dialling %s: %v, want allowed=%t", row.addr, err, row.allowed)
		}
	}
}

// Whoever listens on every address is reached by each of the machine's own, whatever network is allowed.
func TestGuardKnowsItsOwnAddresses(t *testing.T) {
	all := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, listen := range []string{"0.0.0.0:3128", "[::]:3128"} {
		e := New(Options{Allow: all})
		e.Protect(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(listen)))
		for _, a := range addrs {
			addr := netip.MustParsePrefix(a.String()).Addr()
			for _, form := range append(forms(addr), addr) {
				if err := e.control("tcp", netip.AddrPortFrom(form, 3128).String(), nil); !Prohibited(err) {
					t.Errorf("listening on %s, dialling %s: %v, want a ProhibitedError", listen, form, err)
				}
				if err := e.control("tcp", netip.AddrPortFrom(form, 3130).String(), nil); err != nil {
					t.Errorf("dialling another port of %s: %v", form, err)
				}
			}
		}
	}
}

// forms are other ways to write an IPv4 address.
func forms(addr netip.Addr) []netip.Addr {
	if !addr.Is4() {
		return nil
	}
	v4 := addr.As4()
	translated := netip.MustParseAddr("64:ff9b::").As16()
	copy(translated[12:], v4[:])
	return []netip.Addr{netip.AddrFrom16(addr.As16()), netip.AddrFrom16(translated)}
}

func TestGuardCheckBeforeResolving(t *testing.T) {
	e := New(Options{Resolve: map[string]netip.Addr{"mapped.example": netip.MustParseAddr("127.0.0.1")}})
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
func TestGuardDialsWhatItChecked(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if _, err := New(Options{}).DialContext(context.Background(), "tcp", "localhost:"+port); !Prohibited(err) {
		t.Errorf("dialling localhost = %v, want a ProhibitedError", err)
	}
	allow := Options{
		Allow:   []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Resolve: map[string]netip.Addr{"a.example": netip.MustParseAddr("127.0.0.1")},
	}
	c, err := New(allow).DialContext(context.Background(), "tcp", "a.example:"+port)
	if err != nil {
		t.Fatalf("dialling a name that resolve maps: %v", err)
	}
	c.Close()
	if _, err := New(Options{}).DialContext(context.Background(), "tcp", "a.example"); err == nil || !strings.Contains(err.Error(), "missing port") {
		t.Errorf("dialling without a port = %v", err)
	}
}

// listenOn accepts on addr, with the port of the other listeners of a test, and counts who came.
func listenOn(t *testing.T, addr string) (_ *net.TCPListener, came func() int64) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skipf("this machine has no %s: %v", addr, err)
	}
	var count atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			count.Add(1)
			c.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-ended
	})
	return l.(*net.TCPListener), count.Load
}

// A name that is looked up twice may lead to two addresses. It is looked up once for each dial, and what is dialled is
// what was judged: the address that is not allowed never sees a connection, whenever it is the answer.
func TestGuardRebinding(t *testing.T) {
	good, _ := listenOn(t, "127.0.0.2:0")
	port := strconv.Itoa(good.Addr().(*net.TCPAddr).Port)
	_, came := listenOn(t, "127.0.0.1:"+port)
	names := dnstest.New(t)
	const ours, theirs = "127.0.0.2", "127.0.0.1"
	for name, answers := range map[string][][]string{
		"first-good.example": {{ours}, {theirs}, {ours}, {theirs}},
		"first-bad.example":  {{theirs}, {ours}, {theirs}, {ours}},
	} {
		names.Set(name, answers...)
		e := New(Options{Allow: []netip.Prefix{netip.MustParsePrefix(ours + "/32")}, Resolver: names.Resolver()})
		for i, answer := range answers {
			c, err := e.DialContext(t.Context(), "tcp", name+":"+port)
			if allowed := answer[0] == ours; (err == nil) != allowed || err != nil && !Prohibited(err) {
				t.Errorf("dial %d of %s, which leads to %s: %v, want allowed=%t", i+1, name, answer, err, allowed)
			}
			if err == nil {
				if got := c.RemoteAddr().String(); got != ours+":"+port {
					t.Errorf("dial %d of %s reached %s", i+1, name, got)
				}
				c.Close()
			}
		}
		if got := names.Questions(name); got != len(answers) {
			t.Errorf("%s was looked up %d times for %d dials", name, got, len(answers))
		}
	}
	if n := came(); n > 0 {
		t.Errorf("the address that is not allowed saw %d connections", n)
	}
}

// Of an answer with several addresses only those are dialled that are allowed, in whatever order they come.
func TestGuardDialsOnlyTheGoodOnes(t *testing.T) {
	good, _ := listenOn(t, "127.0.0.2:0")
	port := strconv.Itoa(good.Addr().(*net.TCPAddr).Port)
	_, came := listenOn(t, "127.0.0.1:"+port)
	names := dnstest.New(t)
	names.Set("bad-good.example", []string{"127.0.0.1", "10.0.0.1", "127.0.0.2"})
	names.Set("good-bad.example", []string{"127.0.0.2", "127.0.0.1"})
	names.Set("both-families.example", []string{"::1", "fd00::1", "127.0.0.2"})
	names.Set("mapped.example", []string{"::ffff:127.0.0.1", "127.0.0.2"})
	e := New(Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}, Resolver: names.Resolver()})
	for _, name := range []string{"bad-good.example", "good-bad.example", "both-families.example", "mapped.example"} {
		c, err := e.DialContext(t.Context(), "tcp", name+":"+port)
		if err != nil {
			t.Errorf("dialling %s: %v", name, err)
			continue
		}
		if got := c.RemoteAddr().String(); got != "127.0.0.2:"+port {
			t.Errorf("dialling %s reached %s", name, got)
		}
		c.Close()
	}
	if n := came(); n > 0 {
		t.Errorf("an address that is not allowed saw %d connections", n)
	}
}

// A name is dead, and not prohibited, if the addresses that are allowed do not answer.
func TestGuardTellsDeadFromProhibited(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(gone.Addr().(*net.TCPAddr).Port)
	gone.Close()
	names := dnstest.New(t)
	e := New(Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}, Resolver: names.Resolver()})
	for name, row := range map[string]struct {
		addresses  []string
		prohibited bool
	}{
		"bad-dead.example": {[]string{"127.0.0.1", "127.0.0.2"}, false},
		"dead-bad.example": {[]string{"127.0.0.2", "127.0.0.1"}, false},
		"families.example": {[]string{"::1", "127.0.0.2"}, false},
		"bad.example":      {[]string{"127.0.0.1", "10.0.0.1"}, true},
	} {
		names.Set(name, row.addresses)
		_, err := e.DialContext(t.Context(), "tcp", name+":"+port)
		if Prohibited(err) != row.prohibited || errors.Is(err, syscall.ECONNREFUSED) == row.prohibited {
			t.Errorf("dialling %s: %v", name, err)
		}
	}
}

// Numbers that some resolvers read as an IPv4 address lead nowhere, even where something asks for them.
func TestGuardNumbersAreNoNames(t *testing.T) {
	e := New(Options{})
	for _, host := range []string{"2130706433", "0x7f000001", "017700000001", "0x7f.1", "127.1", "0177.0.0.1", "127.0.0.1.", "localhost."} {
		if c, err := e.DialContext(t.Context(), "tcp", host+":80"); err == nil {
			t.Errorf("dialling %s reached %s", host, c.RemoteAddr())
			c.Close()
		}
		if _, err := origin.Parse("http://" + host + "/"); err == nil && !strings.HasSuffix(host, ".") {
			t.Errorf("%s is taken for an origin", host)
		}
	}
}

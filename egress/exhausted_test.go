//go:build unix

package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/dnstest"
)

// withoutDescriptors calls f while the system grants this process no further descriptor.
func withoutDescriptors(t *testing.T, f func()) {
	t.Helper()
	var granted syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &granted); err != nil {
		t.Fatal(err)
	}
	none := granted
	none.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &granted); err != nil {
			t.Fatal(err)
		}
	}()
	f()
}

// A dial and a look-up without a descriptor say nothing about the site, and the addresses of its name are kept.
func TestWithoutDescriptors(t *testing.T) {
	site, _ := listenOn(t, "127.0.0.2:0")
	port := site.Addr().(*net.TCPAddr).Port
	names := dnstest.New(t)
	names.Set("a.example", []string{"127.0.0.2"})
	names.Set("b.example", []string{"127.0.0.2"})
	g := New(Options{Allow: loopback, Resolver: names.Resolver(), KeepNames: time.Minute})
	dial := func(host string) error {
		c, err := g.DialContext(t.Context(), "tcp", fmt.Sprintf("%s:%d", host, port))
		if err == nil {
			c.Close()
		}
		return err
	}
	if err := dial("a.example"); err != nil {
		t.Fatal(err)
	}
	withoutDescriptors(t, func() {
		for _, host := range []string{"127.0.0.2", "a.example", "b.example"} {
			if err := dial(host); !Exhausted(err) {
				t.Errorf("dialling %s without a descriptor: %v", host, err)
			}
		}
	})
	for _, host := range []string{"a.example", "b.example"} {
		if err := dial(host); err != nil {
			t.Errorf("dialling %s afterwards: %v", host, err)
		}
	}
	if n := names.Questions("a.example"); n != 1 {
		t.Errorf("%d questions, want 1", n)
	}
}

func TestExhausted(t *testing.T) {
	dial := func(addr string, err error) error {
		to := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))
		return fmt.Errorf("asking: %w", &net.OpError{Op: "dial", Net: "tcp", Addr: to, Err: err})
	}
	for _, row := range []struct {
		name string
		err  error
		want bool
	}{
		{"no port", dial("192.0.2.1:80", syscall.EADDRNOTAVAIL), true},
		{"no IPv6", dial("[2001:db8::1]:80", syscall.EADDRNOTAVAIL), false},
		{"refused", dial("192.0.2.1:80", syscall.ECONNREFUSED), false},
		{"other address without a port", reported(dial("192.0.2.1:80", syscall.ECONNREFUSED), dial("192.0.2.2:80", syscall.EADDRNOTAVAIL)), true},
		{"first address without a port", reported(dial("192.0.2.1:80", syscall.EADDRNOTAVAIL), dial("192.0.2.2:80", syscall.ECONNREFUSED)), true},
		{"after the dial", &net.OpError{Op: "write", Net: "tcp", Err: syscall.ENOBUFS}, false},
		{"no such name", &net.DNSError{Err: "no such host", IsNotFound: true}, false},
		{"none", nil, false},
	} {
		if got := Exhausted(row.err); got != row.want {
			t.Errorf("%s: Exhausted(%v) = %v", row.name, row.err, got)
		}
	}
}

// A dial that its request has ended says nothing about the addresses: they are kept.
func TestEndedDialKeepsNames(t *testing.T) {
	names := dnstest.New(t)
	names.Set("a.example", []string{"127.0.0.2"})
	g := New(Options{Allow: loopback, Resolver: names.Resolver(), KeepNames: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	g.dialer.Control = func(string, string, syscall.RawConn) error {
		cancel()
		return errors.New("ended")
	}
	for range 2 {
		_, _ = g.DialContext(ctx, "tcp", "a.example:8080")
		ctx = t.Context()
	}
	if n := names.Questions("a.example"); n != 1 {
		t.Errorf("%d questions, want 1", n)
	}
}

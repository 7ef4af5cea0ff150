package robotstest

import (
	"net"
	"testing"
)

// Refusing returns an address, host and port, of this machine that refuses connections until the test ends. The address
// is the local end of an open connection, so that no other program can listen there, unlike on a port that was closed.
func Refusing(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { near.Close() })
	far, err := l.Accept() // otherwise the kernel would reset the connection with the listener, and free the port
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { far.Close() })
	return near.LocalAddr().String()
}

package robotstest

import (
	"net"
	"testing"
)

// Refusing returns the address, host and port, of a place of this machine where connections are refused until the test
// ends. It is the near end of a connection, so that nobody comes to listen there, as at a port that was closed.
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
	far, err := l.Accept() // or the kernel would end the connection with the listener, and free the port
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { far.Close() })
	return near.LocalAddr().String()
}

package proxy

import (
	"testing"

	"go.uber.org/goleak"
)

// An answer that a test does not read holds the connection of the test's client, whose goroutines are not of the proxy.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"))
}

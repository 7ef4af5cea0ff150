package robotstest_test

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// No server listens on the port, and none can.
func TestRefusing(t *testing.T) {
	addr := robotstest.Refusing(t)
	for range 2 {
		if conn, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dialling %s: %v, %v, want it refused", addr, conn, err)
		}
		if l, err := net.Listen("tcp", addr); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("listening on %s: %v, %v, want it in use", addr, l, err)
		}
	}
}

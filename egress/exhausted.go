package egress

import (
	"errors"
	"net"
	"slices"
	"strings"
	"syscall"
)

// shortages are the errors of the system if it has no descriptor or memory for a socket.
var shortages = []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}

// Exhausted reports whether err is a dial or a look-up that failed because this machine has no descriptor, memory or port
// for it. That says nothing about the origin.
func Exhausted(err error) bool {
	var dns *net.DNSError
	if errors.As(err, &dns) { // it has the text of the error, and does not wrap it
		return slices.ContainsFunc(shortages, func(e syscall.Errno) bool { return strings.HasSuffix(dns.Err, ": "+e.Error()) })
	}
	var dial *net.OpError
	if !errors.As(err, &dial) || dial.Op != "dial" {
		return false
	}
	return hasNoPort(dial) || slices.ContainsFunc(shortages, func(e syscall.Errno) bool { return errors.Is(dial, e) })
}

// hasNoPort reports whether all ports for connections to one address are in use. For an IPv6 address the error may
// also say that this machine has no IPv6.
func hasNoPort(dial *net.OpError) bool {
	to, ok := dial.Addr.(*net.TCPAddr)
	return ok && to.IP.To4() != nil && errors.Is(dial, syscall.EADDRNOTAVAIL)
}

// reported returns the error of two attempts that failed, or of one if first is nil: the first, unless the other is
// Exhausted.
func reported(first, other error) error {
	if first == nil || Exhausted(other) {
		return other
	}
	return first
}

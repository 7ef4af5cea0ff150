package main

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// plainedError is an error with another text.
type plainedError struct {
	text string
	err  error
}

func (e *plainedError) Error() string { return e.text }

func (e *plainedError) Unwrap() error { return e.err }

// plainError returns err in words of its own if it is a common error of a connection or a listener: the text of package
// net names system calls. All other errors are returned unchanged.
func plainError(err error) error {
	var op *net.OpError
	if !errors.As(err, &op) {
		return err
	}
	at := op.Addr
	switch {
	case at == nil:
		return err
	case op.Op == "dial" && errors.Is(err, syscall.ECONNREFUSED):
		return &plainedError{fmt.Sprintf("nothing listens on %s", at), err}
	case op.Op == "dial" && op.Timeout():
		return &plainedError{fmt.Sprintf("%s does not answer", at), err}
	case op.Op == "dial" && (errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)):
		return &plainedError{fmt.Sprintf("there is no route to %s", at), err}
	case op.Op == "listen" && errors.Is(err, syscall.EADDRINUSE):
		return &plainedError{fmt.Sprintf("another program listens on %s", at), err}
	case op.Op == "listen" && errors.Is(err, syscall.EADDRNOTAVAIL):
		return &plainedError{fmt.Sprintf("this machine does not have the address %s", at), err}
	case op.Op == "listen" && errors.Is(err, syscall.EACCES):
		return &plainedError{fmt.Sprintf("listening on %s needs more rights", at), err}
	}
	return err
}

//go:build !unix

package main

import (
	"errors"
	"net"
	"os"
)

// passed would be the descriptors that another process gets, which this system does not support.
type passed struct{}

func newPassed() *passed { return &passed{} }

func (*passed) close() {}

func (*passed) pair() (net.Conn, error) {
	return nil, errors.New("an upgrade without a gap needs a Unix system; restart robotsproxy instead")
}

func (*passed) add(*net.TCPListener) error { return errors.ErrUnsupported }

func (*passed) start(string, []string) (*os.Process, error) { return nil, errors.ErrUnsupported }

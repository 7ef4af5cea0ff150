//go:build !linux

package sealed

import (
	"errors"
	"net"
	"os/exec"
)

// Program is a process in namespaces of its own, which this system does not support.
type Program struct{ Listener net.Listener }

var errSystem = errors.New("sealing a program needs Linux and its network namespaces; the program was not started\n" +
	"  Without --sealed, a firewall can block direct connections: see docs/operations.md")

// Prepare fails.
func Prepare(*exec.Cmd, string) (*Program, error) { return nil, errSystem }

// Exec fails.
func (*Program) Exec([]string) error { return errSystem }

// Close does nothing.
func (*Program) Close() error { return nil }

// Stage fails.
func Stage([]string) error { return errSystem }

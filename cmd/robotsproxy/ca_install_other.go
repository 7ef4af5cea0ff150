//go:build !linux

package main

import "crypto/x509"

// systemHolds reports false, because this system cannot be asked.
func systemHolds(*x509.Certificate) bool { return false }

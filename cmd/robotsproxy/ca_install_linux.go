package main

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"

	"github.com/smallstep/truststore"
)

// systemHolds reports whether c is in a file of the folder from which the system's store is made.
func systemHolds(c *x509.Certificate) bool {
	files, _ := filepath.Glob(strings.ReplaceAll(truststore.SystemTrustFilename, "%s", "*"))
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		if block, _ := pem.Decode(text); block != nil && bytes.Equal(block.Bytes, c.Raw) {
			return true
		}
	}
	return false
}

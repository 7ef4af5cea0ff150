package certs_test

import (
	"crypto/x509"
	"fmt"
	"os"

	"github.com/robotsproxy/robotsproxy/certs"
)

func Example() {
	dir, err := os.MkdirTemp("", "certs")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ca, err := certs.Open(certs.Options{Dir: dir})
	if err != nil {
		fmt.Println(err)
		return
	}
	leaf, err := ca.Leaf("a.example")
	if err != nil {
		fmt.Println(err)
		return
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.PEM()) // the certificates that clients must trust
	cert, err := x509.ParseCertificate(leaf.Certificate[0])
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = cert.Verify(x509.VerifyOptions{DNSName: "a.example", Roots: roots})
	fmt.Println(ca.Created(), cert.DNSNames, err)
	// Output: true [a.example] <nil>
}

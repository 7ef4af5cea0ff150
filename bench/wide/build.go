//go:build linux

package main

import (
	_ "embed"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/robotsproxy/robotsproxy/bench/internal/lab"
)

//go:embed testdata/resolver.go
var resolver []byte

// dnsEnv names the variable that holds the address of the DNS server: see testdata/resolver.go.
const dnsEnv = "ROBOTSPROXY_BENCH_DNS"

// build builds a robotsproxy from the source tree as a release is built, but with one file more, by which it asks the
// DNS server of the fake web. dir is for other files.
func build(source, dir, program string) error {
	source, err := filepath.Abs(source)
	if err != nil {
		return err
	}
	if program, err = filepath.Abs(program); err != nil {
		return err
	}
	added, overlay := filepath.Join(dir, "resolver.go"), filepath.Join(dir, "overlay.json")
	replace := map[string]string{filepath.Join(source, "cmd/robotsproxy/resolver_bench.go"): added}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	if err := os.WriteFile(added, resolver, 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return err
	}
	return lab.Build(source, program, "-overlay", overlay)
}

//go:build linux

package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-overlay", overlay,
		"-o", program, "./cmd/robotsproxy")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building robotsproxy in %s: %w\n%s", source, err, out)
	}
	return nil
}

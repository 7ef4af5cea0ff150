package config_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/robotsproxy/robotsproxy/config"
)

// A variable replaces one value of the file, and a flag another.
func Example() {
	dir, err := os.MkdirTemp("", "config")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "robotsproxy.yaml")
	text := "mode: report\nrobots: {ttl: 6h}\nlisten: 127.0.0.1:8080\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		fmt.Println(err)
		return
	}

	cfg, _, err := config.Load(config.Options{
		Path:      path,
		Env:       []string{"HOME=/home/op", "ROBOTSPROXY_ROBOTS_TTL=12h"},
		Overrides: []config.Override{{Key: "listen", Value: "127.0.0.1:0", Source: "--listen"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(cfg.Mode, cfg.Robots.TTL, cfg.Listen, cfg.Robots.MaxSize)
	// Output: report 12h0m0s 127.0.0.1:0 500KiB
}

// The error has every fault, with a suggestion for each.
func ExampleLoad_faults() {
	_, _, err := config.Load(config.Options{
		Env: []string{"HOME=/home/op", "ROBOTSPROXY_ROBOTS_TTL=48h", "ROBOTSPROXY_MODE=enfroce"},
	})
	fmt.Println(err)
	// Output:
	// config: 2 faults
	// ROBOTSPROXY_MODE: mode: found "enfroce", expected enforce, report or off; did you mean enforce?
	// ROBOTSPROXY_ROBOTS_TTL: robots.ttl: found 48h, expected at most 24h (RFC 9309 section 2.4)
}

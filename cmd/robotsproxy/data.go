package main

import (
	"fmt"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/durable"
)

// dataFiles are the files that robotsproxy creates in its data directory, as patterns of filepath.Match.
var dataFiles = []string{"admin.address", "admin.token", "audit.db*", "audit.jsonl*", "ca*.pem", "state.db*", "truststore.p12", "wgetrc"}

// checkData returns an error if others could have put files into the data directory. A CA of an attacker could read
// the traffic of all clients, and through a link the program would overwrite another file.
func checkData(cfg *config.Config) error {
	if err := durable.CheckFolder(cfg.DataDir, dataFiles...); err != nil {
		return usage(fmt.Errorf("data_dir: %w", err))
	}
	return nil
}

// checkOwnData is checkData for running a proxy: only its user may write to the data directory. (Other commands may
// run as root, for the CA of a proxy that runs as another user.)
func checkOwnData(cfg *config.Config) error {
	if err := durable.CheckOwner(cfg.DataDir); err != nil {
		return usage(fmt.Errorf("data_dir: %w", err))
	}
	return checkData(cfg)
}

package main

import (
	"fmt"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/durable"
)

// dataFiles are the files that robotsproxy makes in its data directory, as patterns of filepath.Match.
var dataFiles = []string{"admin.token", "audit.jsonl", "ca*.pem", "state.db*", "truststore.p12", "wgetrc"}

// checkData refuses a data directory whose files others could have put there: with a CA of theirs they read the traffic
// of every client, and a link makes us write over another file.
func checkData(cfg *config.Config) error {
	if err := durable.CheckFolder(cfg.DataDir, dataFiles...); err != nil {
		return usage(fmt.Errorf("data_dir: %w", err))
	}
	return nil
}

// checkOwnData is checkData for a proxy that is to run, whose data directory nobody but its own user may write to.
// (root may look after the CA of a proxy that runs as another user.)
func checkOwnData(cfg *config.Config) error {
	if err := durable.CheckOwner(cfg.DataDir); err != nil {
		return usage(fmt.Errorf("data_dir: %w", err))
	}
	return checkData(cfg)
}

package main

import (
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/ratelimit/redislease"
)

// newRedis returns a client of the configured Redis, or nil if none is configured.
func newRedis(cfg *config.Config, log *slog.Logger) (*redislease.Client, error) {
	url := cfg.Redis.URL
	if file := cfg.Redis.URLFile; file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, usage(fmt.Errorf("reading redis.url_file: %w", err))
		}
		url = strings.TrimSpace(string(text))
	}
	if url == "" {
		return nil, nil
	}
	r, err := redislease.New(redislease.Options{
		URL: url, Prefix: cfg.Redis.Prefix, OnDown: redislease.OnDown(cfg.Redis.OnDown), Logger: log,
	})
	if err != nil {
		return nil, usage(err)
	}
	return r, nil
}

package main

import (
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/ratelimit/redislease"
)

// newRedis returns where instances share their pace, or nil if the configuration names none.
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

// redisGauges are the numbers of what instances share; none if this one is alone.
func redisGauges(r *redislease.Client) []admin.Gauge {
	if r == nil {
		return nil
	}
	counter := func(name, help string, value func(redislease.Stats) uint64) admin.Gauge {
		return admin.Gauge{Name: "robotsproxy_redis_" + name + "_total", Help: help, Counter: true, Value: func() float64 { return float64(value(r.Stats())) }}
	}
	return []admin.Gauge{
		{Name: "robotsproxy_redis_up", Help: "1 while Redis answers, else 0.", Value: func() float64 {
			if r.Stats().Up {
				return 1
			}
			return 0
		}},
		{Name: "robotsproxy_instances", Help: "Instances that share their pace, as far as known, this one among them.", Value: func() float64 { return float64(r.Stats().Instances) }},
		counter("downs", "Times that Redis went down.", func(s redislease.Stats) uint64 { return s.Downs }),
		counter("corrupt", "Answers of Redis in whose lane something was reset.", func(s redislease.Stats) uint64 { return s.Corrupt }),
		counter("lost_leases", "Leases that ran out, or were forgotten, while their request was under way.", func(s redislease.Stats) uint64 { return s.Lost }),
	}
}

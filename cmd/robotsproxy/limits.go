package main

import (
	"log/slog"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/proxy"
)

// fewConnections are so few that an operator should know.
const fewConnections = 1000

// spareDescriptors are kept for what is no connection of a client: files, listeners, fetches of robots.txt, the operator.
const spareDescriptors = 128

// newLimits returns the configured limits, as far as the system grants the descriptors: each connection of a client may
// need another one to an origin. A proxy that runs out of them cannot even say so.
func newLimits(cfg *config.Config, log *slog.Logger) proxy.Limits {
	l := proxy.Limits{
		Connections: cfg.Limits.Connections, ConnectionsPerClient: cfg.Limits.ConnectionsPerClient,
		Tunnels: cfg.Limits.Tunnels, RequestTimeout: cfg.Limits.RequestTimeout,
	}
	descriptors, known := descriptors()
	if !known {
		return l
	}
	most := max(1, (descriptors-spareDescriptors)/2)
	if l.Connections != 0 && l.Connections <= most {
		return l
	}
	if most >= fewConnections {
		log.Info("connections are limited to what the granted descriptors allow", "descriptors", descriptors, "connections", most, "configured", l.Connections)
	} else {
		log.Warn("few descriptors are granted, which limits connections; raise ulimit -n or LimitNOFILE", "descriptors", descriptors, "connections", most)
	}
	l.Connections = most
	return l
}

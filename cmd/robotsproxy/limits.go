package main

import (
	"log/slog"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/proxy"
)

// fewConnections are so few that an operator should know.
const minConnections = 1000

// spareDescriptors are kept for what is no connection of a client: files, listeners, the operator.
const spareDescriptors = 128

// idleDescriptors are for idle connections to origins (512), for clients that get a 503 (256), and for fetches of
// robots.txt. If the system grants few, at most a quarter is for them and for the admin listener.
const idleDescriptors = 512 + 256 + defaultMaxFetches

// mostFetches is how many robots.txt files are fetched at once.
const defaultMaxFetches = 1024

// maxFetches returns mostFetches, or an eighth of the descriptors that the system grants if that is less.
func maxFetches() int {
	descriptors, known := descriptors()
	if !known {
		return defaultMaxFetches
	}
	return min(defaultMaxFetches, max(1, descriptors/8))
}

// newLimits returns the configured limits, as far as the system grants the descriptors: a connection of a client needs
// another one to an origin. (One of HTTP/2 may need more, to an origin that speaks HTTP/1.1; most need none for long.)
// A proxy that runs out of them cannot even say so.
func newLimits(cfg *config.Config, log *slog.Logger) proxy.Limits {
	l := proxy.Limits{
		Connections: cfg.Limits.Connections, ConnectionsPerClient: cfg.Limits.ConnectionsPerClient,
		Tunnels: cfg.Limits.Tunnels, RequestTimeout: cfg.Limits.RequestTimeout,
		Requests: cfg.Limits.Requests, RequestsPerClient: cfg.Limits.RequestsPerClient,
		RequestMemory: int(cfg.Limits.RequestMemory), RequestMemoryPerClient: int(cfg.Limits.RequestMemoryPerClient),
	}
	descriptors, known := descriptors()
	if !known {
		return l
	}
	most := max(1, (descriptors-spareDescriptors-min(idleDescriptors+newAdminLimits(cfg).Connections, descriptors/4))/2)
	if l.Connections != 0 && l.Connections <= most {
		return l
	}
	if most >= minConnections {
		log.Info("connections are limited to what the granted descriptors allow", "descriptors", descriptors, "connections", most, "configured", l.Connections)
	} else {
		log.Warn("few descriptors are granted, which limits connections; raise ulimit -n or LimitNOFILE", "descriptors", descriptors, "connections", most)
	}
	l.Connections = most
	return l
}

// newAdminLimits returns the limits of the admin listener: as configured, but at most 1/16 of the descriptors.
func newAdminLimits(cfg *config.Config) proxy.Limits {
	l := proxy.Limits{Connections: cfg.Admin.Connections, ConnectionsPerClient: cfg.Admin.ConnectionsPerClient}
	if descriptors, known := descriptors(); known {
		l.Connections = min(l.Connections, max(1, descriptors/16))
	}
	return l
}

package main

import (
	"log/slog"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/proxy"
)

// minConnections is the limit of connections below which the log has a warning.
const minConnections = 1000

// spareDescriptors are reserved for files, listeners and the operator.
const spareDescriptors = 128

// busyDescriptors are reserved for clients that get a 503. Together with those of idle connections, of fetches and of the
// admin listener they are at most a quarter of all descriptors.
const busyDescriptors = 256

// maxIdleConns is the most idle connections to origins. Each takes about 20 KiB, and more with TLS.
const maxIdleConns = 4096

// idleConns returns the number of idle connections to origins: an eighth of the descriptors that the system grants, and
// at most maxIdleConns.
func idleConns() int {
	descriptors, known := descriptors()
	if !known {
		return maxIdleConns
	}
	return min(maxIdleConns, max(1, descriptors/8))
}

// maxFetches returns robots.max_fetches, or a sixteenth of the descriptors that the system grants if that is less. Twice
// as many may be under way.
func maxFetches(cfg *config.Config) int {
	descriptors, known := descriptors()
	if !known {
		return cfg.Robots.MaxFetches
	}
	return min(cfg.Robots.MaxFetches, max(1, descriptors/16))
}

// newLimits returns the configured limits. It lowers the limit of connections if the system grants too few descriptors:
// a connection of a client needs a second one to an origin, and a proxy without descriptors cannot even answer 503. (An
// HTTP/2 connection may need several to an origin with HTTP/1.1, usually for a short time.)
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
	reserved := min(idleConns()+busyDescriptors+2*maxFetches(cfg)+newAdminLimits(cfg).Connections, descriptors/4)
	most := max(1, (descriptors-spareDescriptors-reserved)/2)
	if l.Connections != 0 && l.Connections <= most {
		return l
	}
	if most >= minConnections {
		log.Info("connections are limited by the granted file descriptors",
			"descriptors", descriptors, "connections", most, "configured", l.Connections)
	} else {
		log.Warn("few descriptors are granted, which limits connections; raise ulimit -n or LimitNOFILE",
			"descriptors", descriptors, "connections", most)
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

package main

import (
	"slices"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/ratelimit/redislease"
)

type number interface{ int | int64 | uint64 }

func gauge[T number](name, help string, value func() T) admin.Gauge {
	return admin.Gauge{Name: name, Help: help, Value: func() float64 { return float64(value()) }}
}

// counter returns a gauge that never decreases. Its name ends in _total.
func counter[T number](name, help string, value func() T) admin.Gauge {
	g := gauge(name, help, value)
	g.Counter = true
	return g
}

// gauges returns the numbers that the components count. package admin counts the records of requests.
func (c *components) gauges() []admin.Gauge {
	pace := c.limiter.Stats
	return slices.Concat(c.files.gauges(), redisGauges(c.redis), []admin.Gauge{
		gauge("robotsproxy_active_requests", "Requests in progress.", c.server.Active),
		gauge("robotsproxy_connections", "Open connections of clients.", c.server.Connections),
		gauge("robotsproxy_tunnels", "Open tunnels and WebSockets.", c.server.Tunnels),
		counter("robotsproxy_refused_connections_total", "Connections and tunnels answered 503 because of limits.",
			c.server.Refused),
		counter("robotsproxy_distrusted_total", "TLS handshakes that ended because the client did not trust the CA.",
			c.server.Distrusted),
		counter("robotsproxy_unrecorded_total", "Requests refused because their decision could not be recorded.",
			c.server.Unrecorded),
		gauge("robotsproxy_ca_end_timestamp_seconds", "When the last CA that clients must trust expires, in Unix time.",
			func() int64 { return c.ca.Ends().Unix() }),
		gauge("robotsproxy_lanes", "Hosts with a lane.", func() int { return pace().Lanes }),
		gauge("robotsproxy_waiting_requests", "Requests that wait for their host's pace.",
			func() int { return pace().Waiting }),
		counter("robotsproxy_throttled_total", "Requests refused with a time to come back.",
			func() uint64 { return pace().Throttled }),
		counter("robotsproxy_abandoned_total", "Requests whose client left before they were sent.",
			func() uint64 { return pace().Abandoned }),
		counter("robotsproxy_pushed_back_total", "Responses of origins with status 429 or 503.",
			func() uint64 { return pace().PushedBack }),
		counter("robotsproxy_pauses_total", "Pauses of hosts that pushed back, begun or extended.",
			func() uint64 { return pace().Paused }),
		counter("robotsproxy_unkept_pauses_total", "Long pauses that could not be stored: a restart forgets them.",
			func() uint64 { return pace().Unkept }),
		counter("robotsproxy_kept_places_total", "Reservations for clients that were answered 429 with a time to come back.",
			func() uint64 { return pace().Reserved }),
		counter("robotsproxy_lapsed_places_total", "Reservations that were not claimed in time.",
			func() uint64 { return pace().Expired }),
		gauge("robotsproxy_store_bytes", "Bytes of state.db and its write-ahead log on disk.", c.state.Size),
		counter("robotsproxy_audit_lost_total", "Records that could not be written.", c.records.Lost),
	})
}

// gauges returns the numbers that the cache counts.
func (f *files) gauges() []admin.Gauge {
	s := f.Stats
	return []admin.Gauge{
		counter("robotsproxy_robots_hits_total", "Look-ups of robots.txt answered from memory.",
			func() uint64 { return s().Hits }),
		counter("robotsproxy_robots_store_hits_total", "Look-ups of robots.txt answered from disk.",
			func() uint64 { return s().StoreHits }),
		counter("robotsproxy_robots_fetches_total", "Fetches of robots.txt.", func() uint64 { return s().Fetches }),
		counter("robotsproxy_robots_revalidations_total", "Fetches of robots.txt answered with 304.",
			func() uint64 { return s().Revalidated }),
		counter("robotsproxy_robots_failures_total", "Fetches of robots.txt after which the site is unreachable.",
			func() uint64 { return s().Failures }),
		counter("robotsproxy_robots_html_total", "Fetches of robots.txt answered with a web page.",
			func() uint64 { return s().HTML }),
		counter("robotsproxy_robots_stale_served_total", "Look-ups answered with an older copy for lack of a better one.",
			func() uint64 { return s().StaleServed }),
		counter("robotsproxy_robots_changes_total", "Changes of a robots.txt, or of its state.",
			func() uint64 { return s().Changes }),
		counter("robotsproxy_robots_store_errors_total", "Errors of the database of robots.txt files.",
			func() uint64 { return s().StoreErrors }),
		counter("robotsproxy_robots_busy_total", "Fetches that did not begin because too many waited.",
			func() uint64 { return s().Busy }),
		gauge("robotsproxy_robots_waiting", "Fetches of robots.txt that wait to begin.",
			func() int { return s().Waiting }),
		gauge("robotsproxy_robots_fetching", "Fetches of robots.txt in progress.",
			func() int { return s().Fetching }),
	}
}

// redisGauges returns the numbers of the Redis client, or nil if r is nil.
func redisGauges(r *redislease.Client) []admin.Gauge {
	if r == nil {
		return nil
	}
	return []admin.Gauge{
		gauge("robotsproxy_redis_up", "1 while Redis answers, else 0.", func() int {
			if r.Stats().Up {
				return 1
			}
			return 0
		}),
		gauge("robotsproxy_instances", "Known instances that share their pace, including this one.",
			func() int { return r.Stats().Instances }),
		counter("robotsproxy_redis_downs_total", "Times that Redis stopped answering.",
			func() uint64 { return r.Stats().Downs }),
		counter("robotsproxy_redis_corrupt_total", "Responses of Redis after which a part of a lane was reset.",
			func() uint64 { return r.Stats().Corrupt }),
		counter("robotsproxy_redis_lost_leases_total", "Leases that expired or were lost during their request.",
			func() uint64 { return r.Stats().Lost }),
	}
}

package main

import (
	"slices"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/ratelimit/redislease"
)

type number interface{ int | int64 | uint64 }

// gauge returns the gauge robotsproxy_NAME.
func gauge[T number](name, help string, value func() T) admin.Gauge {
	return admin.Gauge{Name: "robotsproxy_" + name, Help: help, Value: func() float64 { return float64(value()) }}
}

// counter returns the counter robotsproxy_NAME_total.
func counter[T number](name, help string, value func() T) admin.Gauge {
	g := gauge(name+"_total", help, value)
	g.Counter = true
	return g
}

// gauges returns the numbers that the components count. Package admin counts the records of requests.
func (c *components) gauges() []admin.Gauge {
	s := c.limiter.Stats
	return slices.Concat(c.files.gauges(), c.changes.gauges(), redisGauges(c.redis), c.modeGauges(), []admin.Gauge{
		gauge("active_requests", "Requests in progress.", c.server.Active),
		gauge("connections", "Open connections of clients.", c.server.Connections),
		gauge("tunnels", "Open tunnels and WebSockets.", c.server.Tunnels),
		counter("refused_connections", "Connections and tunnels answered 503 because of limits.", c.server.Refused),
		counter("distrusted", "TLS handshakes that ended because the client did not trust the CA.", c.server.Distrusted),
		counter("unrecorded", "Requests refused because their decision could not be recorded.", c.server.Unrecorded),
		counter("certificates_issued", "Certificates for hosts that the CA has signed.", c.ca.Issued),
		gauge("ca_end_timestamp_seconds", "Unix time at which the last CA that clients must trust expires.",
			func() int64 { return c.ca.Ends().Unix() }),
		gauge("lanes", "Hosts with a lane.", func() int { return s().Lanes }),
		gauge("waiting_requests", "Requests that wait for their host's pace.", func() int { return s().Waiting }),
		counter("throttled", "Requests refused with a time to come back.", func() uint64 { return s().Rejected }),
		counter("abandoned", "Requests that their clients abandoned before they were sent.", func() uint64 { return s().Abandoned }),
		counter("pushed_back", "Responses of origins with status 429 or 503.", func() uint64 { return s().PushedBack }),
		counter("pauses", "Pauses of hosts that pushed back, begun or extended.", func() uint64 { return s().Paused }),
		counter("unkept_pauses", "Pauses that could not be stored for a restart.", func() uint64 { return s().Unkept }),
		counter("kept_places", "Reservations for clients that were answered 429.", func() uint64 { return s().Reserved }),
		counter("lapsed_places", "Reservations that were not claimed in time.", func() uint64 { return s().Expired }),
		gauge("store_bytes", "Bytes of state.db and its write-ahead log on disk.", c.state.Size),
		gauge("audit_waiting", "Complete records that are not written yet.", func() int { return c.records.Stats().Waiting }),
		counter("audit_written", "Records written.", func() int64 { return c.records.Stats().Written }),
		counter("audit_batches", "Batches in which records were written.", func() int64 { return c.records.Stats().Batches }),
		counter("audit_lost", "Records that could not be written.", func() int64 { return c.records.Stats().Lost }),
	})
}

// modeGauges returns the mode, and the interventions that are in force.
func (c *components) modeGauges() (all []admin.Gauge) {
	for _, mode := range []policy.Mode{policy.Enforce, policy.Report, policy.Off} {
		g := gauge("mode", "1 for the global mode, else 0.", func() int {
			if c.control.config().Mode == mode {
				return 1
			}
			return 0
		})
		g.Labels = map[string]string{"mode": mode.String()}
		all = append(all, g)
	}
	for _, kind := range []policy.InterventionKind{policy.Stop, policy.Slow, policy.Bypass} {
		g := gauge("interventions", "Interventions of operators that are in force, by kind.", func() int {
			n := 0
			for _, i := range c.interventions.Interventions() {
				if i.Kind == kind {
					n++
				}
			}
			return n
		})
		g.Labels = map[string]string{"kind": string(kind)}
		all = append(all, g)
	}
	return all
}

// gauges returns the numbers that the cache counts.
func (f *files) gauges() []admin.Gauge {
	s := f.Stats
	return []admin.Gauge{
		counter("robots_hits", "Look-ups of robots.txt answered from memory.", func() uint64 { return s().Hits }),
		counter("robots_store_hits", "Look-ups of robots.txt answered from disk.", func() uint64 { return s().StoreHits }),
		counter("robots_fetches", "Fetches of robots.txt.", func() uint64 { return s().Fetches }),
		counter("robots_revalidations", "Fetches answered with 304.", func() uint64 { return s().Revalidated }),
		counter("robots_failures", "Fetches after which the site is unreachable.", func() uint64 { return s().Failures }),
		counter("robots_html", "Fetches answered with a web page.", func() uint64 { return s().HTML }),
		counter("robots_stale_served", "Look-ups answered with an older copy.", func() uint64 { return s().StaleServed }),
		counter("robots_changes", "Changes of a robots.txt, or of its state.", func() uint64 { return s().Changes }),
		counter("robots_store_errors", "Errors of the database of files.", func() uint64 { return s().StoreErrors }),
		counter("robots_busy", "Fetches that did not begin because too many waited.", func() uint64 { return s().Busy }),
		gauge("robots_waiting", "Fetches of robots.txt that wait to begin.", func() int { return s().Waiting }),
		gauge("robots_fetching", "Fetches of robots.txt in progress.", func() int { return s().Fetching }),
	}
}

// gauges returns the numbers of reports.
func (r *changeReports) gauges() []admin.Gauge {
	return []admin.Gauge{
		counter("watch_changes", "Changes of a robots.txt that decide recorded requests otherwise.", r.altering.Load),
		counter("watch_unjudged", "Changes of a robots.txt that could not be compared with the records.", r.unjudged.Load),
		counter("webhook_posts", "Reports that the webhook has accepted.", r.posted.Load),
		counter("webhook_failures", "Reports that the webhook did not get.", r.unposted.Load),
	}
}

// redisGauges returns the numbers of the Redis client, or nil if r is nil.
func redisGauges(r *redislease.Client) []admin.Gauge {
	if r == nil {
		return nil
	}
	s := r.Stats
	return []admin.Gauge{
		gauge("redis_up", "1 while Redis answers, else 0.", func() int {
			if s().Up {
				return 1
			}
			return 0
		}),
		gauge("instances", "Known instances that share their pace, including this one.", func() int { return s().Instances }),
		counter("redis_downs", "Times that Redis stopped answering.", func() uint64 { return s().Downs }),
		counter("redis_corrupt", "Responses of Redis that reset a part of a lane.", func() uint64 { return s().Corrupt }),
		counter("redis_lost_leases", "Leases that ended before their request.", func() uint64 { return s().Lost }),
	}
}

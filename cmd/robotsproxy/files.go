package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/egress"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/rules"
	"github.com/robotsproxy/robotsproxy/store"
)

// stateFile is where snapshots outlive the process.
func stateFile(cfg *config.Config) string { return filepath.Join(cfg.DataDir, "state.db") }

// files are the robots.txt files that are in force: the operator's own (hosts: robots_file), else the site's.
type files struct {
	*robots.Cache
	own ownFiles
}

func newFiles(cfg *config.Config, transport http.RoundTripper, state *store.State, paused func(host string) time.Time, log *slog.Logger, set ...cacheSetter) (*files, error) {
	own, err := readOwn(cfg.Hosts)
	if err != nil {
		return nil, err
	}
	running := func(_ *robots.FetcherOptions, o *robots.CacheOptions) {
		o.Store, o.Paused, o.MaxFetches = state, paused, maxFetches()
		o.Changed = func(c robots.Change) { logChange(log, c) }
		o.StoreFailed = storeFailed(log)
	}
	cache, err := newCache(cfg, transport, append(set, running)...)
	if err != nil {
		return nil, err
	}
	return &files{cache, own}, nil
}

// ownFiles are the operator's own, in the order in which they are configured: the first that fits a host counts.
type ownFiles []admin.OwnFile

func readOwn(hosts []config.Host) (own ownFiles, err error) {
	for _, h := range hosts {
		if h.RobotsFile == "" {
			continue
		}
		body, err := os.ReadFile(h.RobotsFile)
		if err != nil {
			return nil, usage(fmt.Errorf("reading the robots_file of %s: %w", h.Host, err))
		}
		own = append(own, admin.OwnFile{Host: h.Host, Snapshot: fileSnapshot(body)})
	}
	return own, nil
}

// of returns the one for a host; nil where there is none.
func (own ownFiles) of(host string) *robots.Snapshot {
	for _, f := range own {
		if policy.MatchHost(f.Host, host) {
			return f.Snapshot
		}
	}
	return nil
}

// Own returns the operator's own file for a canonical host, or all of them where host is empty.
func (f *files) Own(host string) []admin.OwnFile {
	if host == "" {
		return f.own
	}
	if own := f.own.of(host); own != nil {
		return []admin.OwnFile{{Host: host, Snapshot: own}}
	}
	return nil
}

// Snapshot returns the file that is in force for o.
func (f *files) Snapshot(ctx context.Context, o origin.Origin, asker robots.Asker) (*robots.Snapshot, error) {
	if own := f.own.of(o.Host()); own != nil {
		return own, nil
	}
	return f.Cache.Snapshot(ctx, o, asker)
}

// ToJudge returns the file that is in force for o, from within the fetch of another.
func (f *files) ToJudge(ctx context.Context, o origin.Origin, asker robots.Asker) (*robots.Snapshot, error) {
	if own := f.own.of(o.Host()); own != nil {
		return own, nil
	}
	return f.Cache.ToJudge(ctx, o, asker)
}

// Kept returns the file that is in force for o if it is in memory, and nil if it is not.
func (f *files) Kept(o origin.Origin) *robots.Snapshot {
	if own := f.own.of(o.Host()); own != nil {
		return own
	}
	return f.Cache.Kept(o)
}

// Peek returns the file that is in force for o, if it is known.
func (f *files) Peek(ctx context.Context, o origin.Origin) (*robots.Snapshot, error) {
	if own := f.own.of(o.Host()); own != nil {
		return own, nil
	}
	return f.Cache.Peek(ctx, o)
}

// history is what state.db has, and the origins that wait to be written there.
type history struct {
	*store.State
	unsaved func() []origin.Origin
}

// Origins returns at most limit origins as State.Origins does.
func (h history) Origins(ctx context.Context, host string, limit int) ([]origin.Origin, error) {
	all, err := h.State.Origins(ctx, host, limit)
	if err != nil {
		return nil, err
	}
	for _, o := range h.unsaved() {
		if (host == "" || o.Host() == host) && !slices.Contains(all, o) {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b origin.Origin) int {
		return cmp.Or(cmp.Compare(a.Host(), b.Host()), cmp.Compare(a.String(), b.String()))
	})
	return all[:min(len(all), limit)], nil
}

// keepVersions is for how long a text is kept after its origin last had it.
const keepVersions = 90 * 24 * time.Hour

// prune drops from state what nobody can need any more.
func prune(ctx context.Context, state *store.State, log *slog.Logger) {
	if _, err := state.Prune(ctx, time.Now().Add(-keepVersions)); err != nil && ctx.Err() == nil {
		log.Warn("old robots.txt files cannot be dropped", "err", err)
	}
	if err := state.Shrink(ctx); err != nil && ctx.Err() == nil {
		log.Warn("state.db cannot be made as small as store.max_size", "err", err)
	}
}

func logChange(log *slog.Logger, c robots.Change) {
	if c.Why != "" {
		log = log.With("why", c.Why)
	}
	log.Info("a robots.txt has changed", "origin", c.Origin.String(), "was", c.OldState, "is", c.NewState, "old_sha256", c.OldSHA256, "new_sha256", c.NewSHA256)
}

// storeFailed logs faults of the store, at most one a minute: a full disk has one for every fetch.
func storeFailed(log *slog.Logger) func(error) {
	var last atomic.Int64 // of the Unix time
	return func(err error) {
		now, then := time.Now().Unix(), last.Load()
		if now-then >= 60 && last.CompareAndSwap(then, now) {
			log.Warn("state.db cannot be used: what cannot be read or written there is fetched again", "err", err)
		}
	}
}

// cacheSetter changes how robots.txt files are fetched and kept.
type cacheSetter func(*robots.FetcherOptions, *robots.CacheOptions)

func newCache(cfg *config.Config, transport http.RoundTripper, set ...cacheSetter) (*robots.Cache, error) {
	f := robots.FetcherOptions{
		Transport: transport, UserAgent: ownAgent(cfg.Identity), Timeout: cfg.Robots.Timeout,
		MaxSize: int(cfg.Robots.MaxSize), MaxRedirects: cfg.Robots.MaxRedirects,
		TTL: cfg.Robots.TTL, MinTTL: cfg.Robots.MinTTL, ErrorTTL: cfg.Robots.ErrorTTL,
		Prohibited: egress.Prohibited, OnTheWay: onTheWay(cfg),
		UnauthorizedRefuses: cfg.Robots.OnUnauthorized == config.Refuse,
		HTMLRefuses:         cfg.Robots.OnHTML == config.Refuse,
	}
	c := robots.CacheOptions{MaxBytes: int64(cfg.Robots.CacheSize), UnreachableAllows: cfg.Robots.OnUnreachable == config.Allow}
	for _, each := range set {
		each(&f, &c)
	}
	fetcher, err := robots.NewFetcher(f)
	if err != nil {
		return nil, err
	}
	c.Fetch, c.Expiry = fetcher.Fetch, fetcher.Expiry
	return robots.NewCache(c)
}

// onTheWay tells a failure of the upstream proxy from one of the origin behind it; nil where there is none. Of a connection
// that takes too long nobody can say who is to blame.
func onTheWay(cfg *config.Config) func(error) bool {
	if cfg.Egress.UpstreamProxy == "" {
		return nil
	}
	return func(err error) bool {
		return egress.UpstreamFailed(err) || robots.ErrorType(err) == "connection_timeout"
	}
}

// ownAgent is who we are when we fetch a robots.txt: "robotsproxy/0.1 (+https://example.org/bot)".
func ownAgent(id config.Identity) string {
	agent := id.Name + "/" + buildVersion()
	if id.Contact != "" {
		agent += " (+" + id.Contact + ")"
	}
	return agent
}

// fileSnapshot is a robots.txt that was read from a file and not from an origin.
func fileSnapshot(body []byte) *robots.Snapshot {
	sum := sha256.Sum256(body)
	return &robots.Snapshot{
		Availability: robots.Found, Status: http.StatusOK, Fetched: time.Now(), Body: body,
		SHA256: hex.EncodeToString(sum[:]), Rules: rules.Parse(body, rules.Options{}), ContentType: rawType(body),
	}
}

// gauges are the numbers that the cache keeps.
func (f *files) gauges() []admin.Gauge {
	counter := func(name, help string, value func(robots.Stats) uint64) admin.Gauge {
		return admin.Gauge{Name: "robotsproxy_robots_" + name + "_total", Help: help, Counter: true, Value: func() float64 { return float64(value(f.Stats())) }}
	}
	return []admin.Gauge{
		counter("hits", "Look-ups of robots.txt answered from memory.", func(s robots.Stats) uint64 { return s.Hits }),
		counter("store_hits", "Look-ups of robots.txt answered from disk.", func(s robots.Stats) uint64 { return s.StoreHits }),
		counter("fetches", "Fetches of robots.txt.", func(s robots.Stats) uint64 { return s.Fetches }),
		counter("revalidations", "Fetches of robots.txt answered with 304.", func(s robots.Stats) uint64 { return s.Revalidated }),
		counter("failures", "Fetches of robots.txt that left the site unreachable.", func(s robots.Stats) uint64 { return s.Failures }),
		counter("html", "Fetches of robots.txt that brought a web page.", func(s robots.Stats) uint64 { return s.HTML }),
		counter("stale_served", "Look-ups answered with an older copy, since the site gives no better one.", func(s robots.Stats) uint64 { return s.StaleServed }),
		counter("changes", "Changes of a robots.txt, or of its state.", func(s robots.Stats) uint64 { return s.Changes }),
		counter("store_errors", "Faults of the database of robots.txt files.", func(s robots.Stats) uint64 { return s.StoreErrors }),
		{Name: "robotsproxy_robots_waiting", Help: "Fetches of robots.txt that wait for their turn.", Value: func() float64 { return float64(f.Stats().Waiting) }},
		{Name: "robotsproxy_robots_fetching", Help: "Fetches of robots.txt under way.", Value: func() float64 { return float64(f.Stats().Fetching) }},
		counter("busy", "Fetches that did not begin since too many waited.", func(s robots.Stats) uint64 { return s.Busy }),
	}
}

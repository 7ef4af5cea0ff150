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
	"github.com/robotsproxy/robotsproxy/robots/fetch"
	"github.com/robotsproxy/robotsproxy/rules"
	"github.com/robotsproxy/robotsproxy/store"
)

// stateFile returns the path of the database that keeps snapshots over a restart.
func stateFile(cfg *config.Config) string { return filepath.Join(cfg.DataDir, "state.db") }

// files returns the robots.txt file of an origin: the operator's own if there is one (hosts: robots_file), else the
// site's.
type files struct {
	*robots.Cache
	own atomic.Pointer[ownFiles] // replaced when the configuration is read again
}

func newFiles(
	cfg *config.Config, transport http.RoundTripper, kept robots.Store, paused func(host string) time.Time,
	changed func(robots.Change), log *slog.Logger, option cacheOption,
) (*files, error) {
	own, err := readOwn(cfg.Hosts)
	if err != nil {
		return nil, err
	}
	cache, err := newCache(cfg, transport, func(f *fetch.Options, o *robots.CacheOptions) {
		option(f, o)
		o.Store, o.Paused, o.MaxFetches = kept, paused, maxFetches(cfg)
		o.Changed = changed
		o.StoreFailed = storeFailed(log)
	})
	if err != nil {
		return nil, err
	}
	f := &files{Cache: cache}
	f.own.Store(&own)
	return f, nil
}

// ownFile returns the operator's own file for a host, or nil.
func (f *files) ownFile(host string) *robots.Snapshot { return f.own.Load().match(host) }

// ownFiles are the operator's own files, in the order of the configuration. The first match applies.
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

// match returns the file for a host, or nil.
func (own ownFiles) match(host string) *robots.Snapshot {
	for _, f := range own {
		if policy.MatchHost(f.Host, host) {
			return f.Snapshot
		}
	}
	return nil
}

// Own returns the operator's own file for a canonical host, or all of them if host is empty.
func (f *files) Own(host string) []admin.OwnFile {
	if host == "" {
		return *f.own.Load()
	}
	if own := f.ownFile(host); own != nil {
		return []admin.OwnFile{{Host: host, Snapshot: own}}
	}
	return nil
}

// Snapshot returns the file of o.
func (f *files) Snapshot(ctx context.Context, o origin.Origin, asker robots.Asker) (*robots.Snapshot, error) {
	if own := f.ownFile(o.Host()); own != nil {
		return own, nil
	}
	return f.Cache.Snapshot(ctx, o, asker)
}

// ToJudge returns the file of o during the fetch of another file.
func (f *files) ToJudge(ctx context.Context, o origin.Origin, asker robots.Asker) (*robots.Snapshot, error) {
	if own := f.ownFile(o.Host()); own != nil {
		return own, nil
	}
	return f.Cache.ToJudge(ctx, o, asker)
}

// Kept returns the file of o if it is in memory, else nil.
func (f *files) Kept(o origin.Origin) *robots.Snapshot {
	if own := f.ownFile(o.Host()); own != nil {
		return own
	}
	return f.Cache.Kept(o)
}

// Peek returns the file of o without fetching it.
func (f *files) Peek(ctx context.Context, o origin.Origin) (*robots.Snapshot, error) {
	if own := f.ownFile(o.Host()); own != nil {
		return own, nil
	}
	return f.Cache.Peek(ctx, o)
}

// history lists the origins in the store, and those that wait to be written there.
type history struct {
	admin.History // a *store.State or *store.SharedFiles
	unsaved       func() []origin.Origin
}

// Changes returns the changes of o, after those that wait to be written.
func (h history) Changes(ctx context.Context, o origin.Origin, limit int) ([]robots.Change, error) {
	deadline := time.Now().Add(unsavedPatience)
	for slices.Contains(h.unsaved(), o) && time.Now().Before(deadline) && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	return h.History.Changes(ctx, o, limit)
}

// unsavedPatience is how long a list of changes waits for a change that is not written yet: state.db may be out of use.
const unsavedPatience = 2 * time.Second

// Origins returns at most limit origins, in the order of State.Origins.
func (h history) Origins(ctx context.Context, host string, limit int) ([]origin.Origin, error) {
	all, err := h.History.Origins(ctx, host, limit)
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

// versionRetention is the time for which an old version of a file is kept.
const versionRetention = 90 * 24 * time.Hour

// prune deletes old versions from state, and shrinks its file to the configured size.
func prune(ctx context.Context, state *store.State, log *slog.Logger) {
	if _, err := state.Prune(ctx, time.Now().Add(-versionRetention)); err != nil && ctx.Err() == nil {
		log.Warn("old robots.txt files cannot be dropped", "err", err)
	}
	if err := state.Shrink(ctx); err != nil && ctx.Err() == nil {
		log.Warn("state.db cannot be made as small as store.max_size", "err", err)
	}
}

// storeFailed returns a function that logs errors of the store, at most one per minute: a full disk causes one per
// fetch.
func storeFailed(log *slog.Logger) func(error) {
	return minutely(log, "state.db cannot be used: robots.txt files that it cannot return or store are fetched again")
}

// cacheOption changes the options of a cache.
type cacheOption func(*fetch.Options, *robots.CacheOptions)

func newCache(cfg *config.Config, transport http.RoundTripper, option cacheOption) (*robots.Cache, error) {
	o, err := cacheOptions(cfg, transport, option)
	if err != nil {
		return nil, err
	}
	return robots.NewCache(o)
}

func cacheOptions(
	cfg *config.Config, transport http.RoundTripper, option cacheOption,
) (c robots.CacheOptions, err error) {
	f := fetch.Options{
		Transport: transport, UserAgent: ownUserAgent(cfg.Identity), Timeout: cfg.Robots.Timeout,
		MaxSize: int(cfg.Robots.MaxSize), MaxRedirects: cfg.Robots.MaxRedirects,
		TTL: cfg.Robots.TTL, MinTTL: cfg.Robots.MinTTL, ErrorTTL: cfg.Robots.ErrorTTL,
		Prohibited: egress.Prohibited, UpstreamFailed: upstreamFailed(cfg), Exhausted: egress.Exhausted,
		UnauthorizedRefuses: cfg.Robots.OnUnauthorized == config.Refuse,
		HTMLRefuses:         cfg.Robots.OnHTML == config.Refuse,
	}
	c.MaxQueue = cfg.Robots.MaxQueue
	// The rest is for the garbage collector and the allocator.
	c.MaxBytes, c.UnreachableAllows = int64(cfg.Robots.CacheSize)/3, cfg.Robots.OnUnreachable == config.Allow
	option(&f, &c)
	fetcher, err := fetch.New(f)
	if err != nil {
		return c, err
	}
	c.Fetch, c.Expiry = fetcher.Fetch, fetcher.Expiry
	return c, nil
}

// upstreamFailed returns a function that reports whether an error is a failure of the upstream proxy, not of the
// origin. It returns nil without an upstream proxy. The function reports true for a time-out, whose cause is unknown.
func upstreamFailed(cfg *config.Config) func(error) bool {
	if cfg.Egress.UpstreamProxy == "" {
		return nil
	}
	return func(err error) bool {
		return egress.UpstreamFailed(err) || fetch.ErrorType(err) == "connection_timeout"
	}
}

// ownUserAgent returns the User-Agent for fetches of robots.txt: "robotsproxy/0.1 (+https://example.org/bot)".
func ownUserAgent(id config.Identity) string {
	agent := id.Name + "/" + buildVersion()
	if id.Contact != "" {
		agent += " (+" + id.Contact + ")"
	}
	return agent
}

// fileSnapshot returns a snapshot of a robots.txt that was read from a file.
func fileSnapshot(body []byte) *robots.Snapshot {
	sum := sha256.Sum256(body)
	return &robots.Snapshot{
		Answer: robots.Answer{
			Availability: robots.Found, Status: http.StatusOK, Fetched: time.Now(), Body: body,
			SHA256: hex.EncodeToString(sum[:]), ContentType: rawType(body),
		},
		Rules: rules.Parse(body, rules.Options{}),
	}
}

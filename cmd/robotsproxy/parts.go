package main

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/certs"
	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/proxy"
	"github.com/robotsproxy/robotsproxy/ratelimit"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/rules"
)

// parts are the concrete parts of one running proxy. This is the only place where they meet.
type parts struct {
	ca      *certs.Authority
	egress  *proxy.Egress
	cache   *robots.Cache
	redis   *ratelimit.Redis // nil: there is no other instance
	limiter *ratelimit.Limiter
	records *audit.JSONL
	server  *proxy.Server
}

// observer is shown each record when it is complete. It must be quick and may not keep the record.
type observer func(*audit.Record)

// newParts builds a proxy from cfg. Nothing listens yet.
func newParts(cfg *config.Config, log *slog.Logger, observers ...observer) (_ *parts, err error) {
	p := &parts{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.ca, err = openCA(cfg); err != nil {
		return nil, err
	}
	p.egress = newEgress(cfg)
	transport, err := newTransport(cfg, p.egress)
	if err != nil {
		return nil, err
	}
	if p.cache, err = newCache(cfg, transport); err != nil {
		return nil, err
	}
	if p.redis, err = newRedis(cfg, log); err != nil {
		return nil, err
	}
	if p.limiter, err = newLimiter(cfg, p.redis); err != nil {
		return nil, err
	}
	if p.records, err = newRecords(cfg, log); err != nil {
		return nil, err
	}
	p.server, err = p.newServer(cfg, transport, log, observers)
	return p, err
}

func (p *parts) newServer(cfg *config.Config, transport *proxy.Transport, log *slog.Logger, observers []observer) (*proxy.Server, error) {
	judge, err := newPolicy(cfg)
	if err != nil {
		return nil, err
	}
	snapshots, err := newOwnFiles(cfg, p.cache)
	if err != nil {
		return nil, err
	}
	query, err := audit.ParseQueryMode(string(cfg.Audit.Query))
	if err != nil {
		return nil, err
	}
	return proxy.New(proxy.Options{
		Snapshots: snapshots, Policy: judge, Limiter: p.limiter, Authority: p.ca,
		Recorder: observedRecorder{p.records, observers}, Egress: p.egress, Transport: transport,
		Clients: newClients(cfg), MaxWait: orNone(cfg.Pacing.MaxWait), MaxWaitCap: cfg.Pacing.MaxWaitCap,
		Pace:          p.pace(cfg),
		RefusalStatus: cfg.Refusal.Status, ResponseFields: cfg.ResponseFields, ServeRobots: cfg.Robots.ServeFromCache,
		Query: query, Onboarding: proxy.Onboarding(p.ca.PEM()), Logger: log,
	})
}

// close ends what newParts began. The records go last: everything before may still write some.
func (p *parts) close() error {
	var err error
	if p.server != nil {
		err = p.server.Close()
	}
	if p.redis != nil {
		err = errors.Join(err, p.redis.Close())
	}
	if p.cache != nil {
		p.cache.Close()
	}
	if p.records != nil {
		err = errors.Join(err, p.records.Close())
	}
	return err
}

func newEgress(cfg *config.Config) *proxy.Egress {
	ports := make([]proxy.PortRange, len(cfg.Egress.Ports))
	for i, r := range cfg.Egress.Ports {
		ports[i] = proxy.PortRange(r)
	}
	return proxy.NewEgress(proxy.EgressOptions{
		Allow: cfg.Egress.AllowAddresses, Deny: cfg.Egress.DenyAddresses, Ports: ports, Resolve: cfg.Egress.Resolve,
	})
}

func newTransport(cfg *config.Config, egress *proxy.Egress) (*proxy.Transport, error) {
	roots, err := originRoots(cfg.Egress.CAFile)
	if err != nil {
		return nil, usage(err)
	}
	return proxy.NewTransport(proxy.TransportOptions{Egress: egress, RootCAs: roots, InsecureHosts: cfg.Egress.InsecureHosts}), nil
}

// originRoots returns the system's roots and those of file, or nil, which means the system's.
func originRoots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading egress.ca_file: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("reading the system's roots: %w", err)
	}
	if !roots.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("egress.ca_file %s holds no certificate in PEM", file)
	}
	return roots, nil
}

func newCache(cfg *config.Config, transport http.RoundTripper) (*robots.Cache, error) {
	fetcher, err := newFetcher(cfg, transport)
	if err != nil {
		return nil, err
	}
	return robots.NewCache(robots.CacheOptions{Fetch: fetcher.Fetch, MaxBytes: int64(cfg.Robots.CacheSize)})
}

func newFetcher(cfg *config.Config, transport http.RoundTripper) (*robots.Fetcher, error) {
	return robots.NewFetcher(robots.FetcherOptions{
		Transport: transport, UserAgent: ownAgent(cfg.Identity), Timeout: cfg.Robots.Timeout,
		MaxSize: int(cfg.Robots.MaxSize), MaxRedirects: cfg.Robots.MaxRedirects,
		TTL: cfg.Robots.TTL, MinTTL: cfg.Robots.MinTTL, ErrorTTL: cfg.Robots.ErrorTTL,
		Prohibited:          proxy.Prohibited,
		UnauthorizedRefuses: cfg.Robots.OnUnauthorized == config.Refuse,
		HTMLRefuses:         cfg.Robots.OnHTML == config.Refuse,
	})
}

// ownAgent is who we are when we fetch a robots.txt: "robotsproxy/0.1 (+https://example.org/bot)".
func ownAgent(id config.Identity) string {
	agent := id.Name + "/" + buildVersion()
	if id.Contact != "" {
		agent += " (+" + id.Contact + ")"
	}
	return agent
}

// orNone writes a configured 0 as the options of our packages do, to whom zero is a default and a negative value none.
func orNone[T int | time.Duration](v T) T {
	if v == 0 {
		return -1
	}
	return v
}

// newRedis returns where instances share their pace, or nil if the configuration names none.
func newRedis(cfg *config.Config, log *slog.Logger) (*ratelimit.Redis, error) {
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
	r, err := ratelimit.NewRedis(ratelimit.RedisOptions{
		URL: url, Prefix: cfg.Redis.Prefix, OnDown: ratelimit.OnDown(cfg.Redis.OnDown), Logger: log,
	})
	if err != nil {
		return nil, usage(err)
	}
	return r, nil
}

func newLimiter(cfg *config.Config, redis *ratelimit.Redis) (*ratelimit.Limiter, error) {
	var shared ratelimit.Shared
	if redis != nil {
		shared = redis
	}
	return ratelimit.New(ratelimit.Options{
		Shared:   shared,
		MaxQueue: cfg.Pacing.MaxQueue, MaxQueuePerClient: cfg.Pacing.MaxQueuePerClient, MaxConcurrent: orNone(cfg.Pacing.MaxConcurrent),
		DefaultDelay: cfg.Pacing.DefaultDelay, DefaultBurst: cfg.Pacing.DefaultBurst,
		ReleaseAfter: cfg.Pacing.ReleaseAfter, SpacingStart: cfg.Pacing.Spacing == config.SpacingStart,
		AddrDelay: cfg.Pacing.IPDelay, AddrExempt: cfg.Pacing.IPExempt,
	})
}

func (p *parts) pace(cfg *config.Config) proxy.Pace {
	pace := proxy.Pace{RideRedirects: cfg.Pacing.Redirects == config.RedirectsRide}
	if cfg.Pacing.Key == config.PaceKeyDomain {
		pace.Key = ratelimit.Domain
	}
	if cfg.Pacing.IPDelay > 0 {
		pace.Addr = proxy.NewAddresses(p.egress).Of
	}
	return pace
}

func newRecords(cfg *config.Config, log *slog.Logger) (*audit.JSONL, error) {
	path := cfg.Audit.JSONL
	if path == "" {
		path = filepath.Join(cfg.DataDir, "audit.jsonl")
	}
	return audit.OpenJSONL(audit.JSONLOptions{
		Path: path, Buffer: cfg.Audit.Buffer, Continue: cfg.Audit.OnFailure == config.OnFailureContinue, Logger: log,
	})
}

func newPolicy(cfg *config.Config) (*policy.Policy, error) {
	hosts := make([]policy.Host, len(cfg.Hosts))
	for i, h := range cfg.Hosts {
		hosts[i] = policy.Host{Pattern: h.Host, Mode: h.Mode, Dialect: h.Dialect, Delay: h.Delay}
	}
	return policy.New(policy.Options{
		Mode: cfg.Mode, Dialect: cfg.Robots.Dialect, Hosts: hosts, Exemptions: cfg.Exemptions,
		MaxCrawlDelay: cfg.Pacing.MaxCrawlDelay, RefuseOverMax: cfg.Pacing.OverMax == config.OverMaxRefuse,
		VisitTime: cfg.Pacing.VisitTime == config.VisitTimeObey,
	})
}

func newClients(cfg *config.Config) []proxy.Client {
	clients := make([]proxy.Client, len(cfg.Clients))
	for i, c := range cfg.Clients {
		clients[i] = proxy.Client{
			Client:   policy.Client{Name: c.Name, ProductToken: c.ProductToken, Mode: c.Mode, Dialect: c.Dialect, MaxCrawlDelay: c.MaxCrawlDelay},
			Prefixes: c.CIDR, MaxWait: c.MaxWait, Purpose: c.Purpose, Pages: c.Subresources == config.SubresourcesPage,
		}
	}
	return clients
}

// ownFiles puts the operator's own robots.txt of a host (hosts: robots_file) in the place of the site's.
type ownFiles struct {
	patterns []string
	files    []*robots.Snapshot
	cache    *robots.Cache
}

func newOwnFiles(cfg *config.Config, cache *robots.Cache) (*ownFiles, error) {
	own := &ownFiles{cache: cache}
	for _, h := range cfg.Hosts {
		if h.RobotsFile == "" {
			continue
		}
		body, err := os.ReadFile(h.RobotsFile)
		if err != nil {
			return nil, usage(fmt.Errorf("reading the robots_file of %s: %w", h.Host, err))
		}
		own.patterns = append(own.patterns, h.Host)
		own.files = append(own.files, fileSnapshot(body))
	}
	return own, nil
}

// fileSnapshot is a robots.txt that was read from a file and not from an origin.
func fileSnapshot(body []byte) *robots.Snapshot {
	sum := sha256.Sum256(body)
	return &robots.Snapshot{
		Availability: robots.Found, Status: http.StatusOK, Fetched: time.Now(), Body: body,
		SHA256: hex.EncodeToString(sum[:]), Rules: rules.Parse(body, rules.Options{}), ContentType: rawType(body),
	}
}

// Snapshot returns the operator's own file for o, or the origin's.
func (f *ownFiles) Snapshot(ctx context.Context, o origin.Origin) (*robots.Snapshot, error) {
	for i, pattern := range f.patterns {
		if policy.MatchHost(pattern, o.Host()) {
			return f.files[i], nil
		}
	}
	return f.cache.Snapshot(ctx, o)
}

// observedRecorder shows each complete record to the observers before it is written.
type observedRecorder struct {
	*audit.JSONL
	observers []observer
}

func (r observedRecorder) End(rec *audit.Record) {
	for _, observe := range r.observers {
		observe(rec)
	}
	r.JSONL.End(rec)
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/auth"
	"github.com/robotsproxy/robotsproxy/certs"
	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/egress"
	"github.com/robotsproxy/robotsproxy/onboarding"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/ownfetch"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/proxy"
	"github.com/robotsproxy/robotsproxy/ratelimit"
	"github.com/robotsproxy/robotsproxy/ratelimit/redislease"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/store"
)

// parts are the concrete parts of one running proxy. This is the only place where they meet.
type parts struct {
	ca      *certs.Authority
	guard   *egress.Guard
	redis   *redislease.Client // nil: there is no other instance
	state   *store.State
	files   *files
	limiter *ratelimit.Limiter
	policy  *policy.Policy
	records *audit.JSONL
	ids     audit.Sequence // of the records
	query   audit.QueryMode
	fetches *ownfetch.Fetches
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
	if err = checkOwnData(cfg); err != nil {
		return nil, err
	}
	if p.ca, err = openCA(cfg, log); err != nil {
		return nil, err
	}
	warnOfEnd(p.ca, log)
	if p.guard, err = newGuard(cfg); err != nil {
		return nil, err
	}
	pseudonym := egress.NewPseudonym()
	transport, err := newTransport(cfg, p.guard, pseudonym)
	if err != nil {
		return nil, err
	}
	if p.state, err = store.Open(store.Options{Path: stateFile(cfg), MaxSize: int64(cfg.Store.MaxSize), Used: p.isUsed}); err != nil {
		return nil, err
	}
	if p.redis, err = newRedis(cfg, log); err != nil {
		return nil, err
	}
	p.ids.Instance = p.number(cfg, log)
	if p.limiter, err = newLimiter(cfg, p.redis, p.state); err != nil {
		return nil, err
	}
	if p.policy, err = newPolicy(cfg); err != nil {
		return nil, err
	}
	if p.records, err = newRecords(cfg, log); err != nil {
		return nil, err
	}
	if p.query, err = audit.ParseQueryMode(string(cfg.Audit.Query)); err != nil {
		return nil, err
	}
	if p.files, err = newFiles(cfg, transport, p.state, p.paused(cfg), log, p.fetching(cfg)); err != nil {
		return nil, err
	}
	pace := p.pace(cfg)
	p.fetches = ownfetch.New(ownfetch.Options{
		Rules: p.files, Policy: p.policy, Client: ourselves(cfg), Limiter: p.limiter, Key: pace.Key,
		Recorder: observedRecorder{p.records, observers}, IDs: &p.ids, Query: p.query,
	})
	p.server, err = p.newServer(cfg, transport, pace, pseudonym, log, observers)
	return p, err
}

func (p *parts) newServer(cfg *config.Config, transport *egress.Transport, pace proxy.Pace, pseudonym string, log *slog.Logger, observers []observer) (*proxy.Server, error) {
	users, err := newUsers(cfg)
	if err != nil {
		return nil, err
	}
	return proxy.New(proxy.Options{
		Snapshots: p.files, Policy: p.policy, Limiter: p.limiter, Authority: p.ca,
		Recorder: observedRecorder{p.records, observers}, Guard: p.guard, Transport: transport,
		Clients: newClients(cfg), Users: users, AuthRequired: cfg.Auth.Required, MaxWait: orNone(cfg.Pacing.MaxWait), MaxWaitCap: cfg.Pacing.MaxWaitCap,
		Pace:      pace,
		Pseudonym: pseudonym, RefusalStatus: cfg.Refusal.Status, ResponseFields: cfg.ResponseFields, ServeRobots: cfg.Robots.ServeFromCache,
		HeaderTimeout: cfg.Limits.HeaderTimeout, IdleTimeout: cfg.Limits.IdleTimeout, Limits: newLimits(cfg, log),
		IDs: &p.ids, Query: p.query, Onboarding: onboarding.Handler(p.ca), Logger: log,
	})
}

// number returns the number of this instance in the ids of its records. If it is not configured, it differs from those of
// the instances that share its Redis, else from those of the next 1023 that start with its state.db.
func (p *parts) number(cfg *config.Config, log *slog.Logger) func() int {
	if p.redis != nil && cfg.Audit.Instance < 0 {
		return p.redis.Number
	}
	n := cfg.Audit.Instance
	if n < 0 {
		starts, err := p.state.CountStart(context.Background())
		if err != nil {
			log.Warn("the number of this instance is random", "err", err)
			starts = rand.Int64N(audit.Instances)
		}
		n = int(starts % audit.Instances)
	}
	return func() int { return n }
}

// close ends what newParts began: first the parts that send requests, then those that pace them and the stores that both
// write to. The records go last, since every other part may still write some.
func (p *parts) close() error {
	var err error
	if p.server != nil {
		err = p.server.Close()
	}
	if p.files != nil {
		p.files.Close()
	}
	if p.limiter != nil {
		p.limiter.Close()
	}
	if p.redis != nil {
		err = errors.Join(err, p.redis.Close())
	}
	if p.state != nil {
		err = errors.Join(err, p.state.Close())
	}
	if p.records != nil {
		err = errors.Join(err, p.records.Close())
	}
	return err
}

// keepHouse does at the start and once a day, until ctx ends, what nothing else calls for. Of the CA's end newParts has
// told.
func (p *parts) keepHouse(ctx context.Context, log *slog.Logger) {
	day := time.NewTicker(24 * time.Hour)
	defer day.Stop()
	for {
		prune(ctx, p.state, log)
		select {
		case <-day.C:
			warnOfEnd(p.ca, log)
		case <-ctx.Done():
			return
		}
	}
}

// orNone writes a configured 0 as the options of our packages do, to whom zero is a default and a negative value none.
func orNone[T int | time.Duration](v T) T {
	if v == 0 {
		return -1
	}
	return v
}

// isUsed reports whether a robots.txt in memory was used lately.
func (p *parts) isUsed(o origin.Origin) bool { return p.files != nil && p.files.Used(o) }

func newLimiter(cfg *config.Config, redis *redislease.Client, pauses ratelimit.Pauses) (*ratelimit.Limiter, error) {
	var coordinator ratelimit.Coordinator
	if redis != nil {
		coordinator = redis
	}
	return ratelimit.New(ratelimit.Options{
		Coordinator: coordinator, Pauses: pauses,
		MaxQueue: cfg.Pacing.MaxQueue, MaxQueuePerClient: cfg.Pacing.MaxQueuePerClient, MaxConcurrent: orNone(cfg.Pacing.MaxConcurrent),
		DefaultDelay: cfg.Pacing.DefaultDelay, DefaultBurst: cfg.Pacing.DefaultBurst,
		ReleaseAfter: cfg.Pacing.ReleaseAfter, SpacingStart: cfg.Pacing.Spacing == config.SpacingStart,
	})
}

// laneOf returns the key of a canonical host's lane.
func laneOf(cfg *config.Config, host string) string {
	host = origin.Key(host)
	if cfg.Pacing.Key == config.PaceKeyDomain {
		return ratelimit.Domain(host)
	}
	return host
}

// paused says until when a host is left alone, by its lane.
func (p *parts) paused(cfg *config.Config) func(host string) time.Time {
	return func(host string) time.Time { return p.limiter.Paused(laneOf(cfg, host)) }
}

// fetching has the requests for robots.txt files judged and recorded, and those to the ports of one host spaced.
func (p *parts) fetching(cfg *config.Config) cacheSetter {
	return func(f *robots.FetcherOptions, c *robots.CacheOptions) {
		f.Admit = func(ctx context.Context, hop robots.Hop) (robots.Visit, error) { return p.fetches.Admit(ctx, hop) } // made after the files
		c.Spacing, c.MaxWait = p.spacing(cfg), max(cfg.Pacing.MaxWait, cfg.Robots.Timeout)
	}
}

// spacing says for how long a fetch of robots.txt from another port of o's host keeps away from one for o: for the Delay in
// force, else for a second. Snap is what counts of o's; nil: not known.
func (p *parts) spacing(cfg *config.Config) func(o origin.Origin, snap *robots.Snapshot) time.Duration {
	return func(o origin.Origin, snap *robots.Snapshot) time.Duration {
		var delay time.Duration
		if snap != nil {
			delay = p.policy.Judge(policy.Request{Client: ourselves(cfg), Origin: o, Target: "/robots.txt"}, snap, time.Now()).Delay
		}
		if view, ok := p.limiter.Peek(laneOf(cfg, o.Host())); ok {
			delay = max(delay, view.Floor)
		}
		return cmp.Or(delay, cfg.Pacing.DefaultDelay, time.Second)
	}
}

// ourselves is the client by whose rules requests of our own are judged.
func ourselves(cfg *config.Config) policy.Client {
	return policy.Client{ProductToken: cmp.Or(cfg.Identity.Name, "*")}
}

func (p *parts) pace(cfg *config.Config) proxy.Pace {
	var pace proxy.Pace
	if cfg.Pacing.Key == config.PaceKeyDomain {
		pace.Key = ratelimit.Domain
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
		hosts[i] = policy.Host{Pattern: h.Host, Mode: h.Mode, Dialect: h.Dialect, Delay: h.Delay, Interception: h.Intercept}
	}
	return policy.New(policy.Options{
		Mode: cfg.Mode, Dialect: cfg.Robots.Dialect, Hosts: hosts, Exemptions: cfg.Exemptions,
		Interception: cfg.Intercept.Mode, TunnelHosts: cfg.Intercept.TunnelHosts,
		MaxCrawlDelay: cfg.Pacing.MaxCrawlDelay, RefuseOverMax: cfg.Pacing.OverMax == config.OverMaxRefuse,
	})
}

func newClients(cfg *config.Config) []proxy.Client {
	clients := make([]proxy.Client, len(cfg.Clients))
	for i, c := range cfg.Clients {
		clients[i] = proxy.Client{
			Client: policy.Client{Name: c.Name, ProductToken: c.ProductToken, Mode: c.Mode, Dialect: c.Dialect, MaxCrawlDelay: c.MaxCrawlDelay},
			User:   c.User, Prefixes: c.CIDR, MaxWait: c.MaxWait, Purpose: c.Purpose, Pages: c.Subresources == config.SubresourcesPage,
		}
	}
	return clients
}

// newUsers reads the htpasswd file, and reports clients with a user that it does not list. It returns nil without a file.
func newUsers(cfg *config.Config) (*auth.Users, error) {
	if cfg.Auth.HtpasswdFile == "" {
		return nil, nil
	}
	users, err := auth.LoadUsers(cfg.Auth.HtpasswdFile)
	if err != nil {
		return nil, usage(fmt.Errorf("auth.htpasswd_file: %w", err))
	}
	for _, client := range cfg.Clients {
		if client.User != "" && !users.Has(client.User) {
			return nil, usage(fmt.Errorf("the user %q of the client %s has no line in %s", client.User, client.Name, cfg.Auth.HtpasswdFile))
		}
	}
	return users, nil
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

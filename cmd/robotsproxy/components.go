package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/auth"
	"github.com/robotsproxy/robotsproxy/certs"
	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/egress"
	"github.com/robotsproxy/robotsproxy/internal/requestlog"
	"github.com/robotsproxy/robotsproxy/onboarding"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/ownfetch"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/proxy"
	"github.com/robotsproxy/robotsproxy/ratelimit"
	"github.com/robotsproxy/robotsproxy/ratelimit/redislease"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
	"github.com/robotsproxy/robotsproxy/store"
)

// components are the concrete types that make up one running proxy. No other package imports all of them.
type components struct {
	ca        *certs.Authority
	guard     *egress.Guard
	addresses *egress.Addresses  // nil if requests are not paced by address
	redis     *redislease.Client // nil without Redis
	state     *store.State
	postgres  *sharedDatabase // nil unless audit.store is postgres
	shared    sharedFiles     // nil unless instances share them
	watch     filesWatch
	files     *files
	changes   *changeReports
	limiter   *ratelimit.Limiter
	records   *audit.Recorder
	kept      audit.Store    // nil without a database
	ids       audit.Sequence // of the records
	fetches   *ownfetch.Fetches
	server    *proxy.Server
	control   *control
	pseudonym string
	observe   observer

	certificates *auth.Certificates // of the listener; nil without TLS

	reloading sync.Mutex        // held by reload; guards contents
	contents  map[string]string // of the files that the configuration names: see readContents

	interventions *interventions
	exemptions    *exemptions
}

// observer sees all records. Its functions may be nil, and must return quickly.
type observer struct {
	ended   func(*audit.Record)                     // called with each complete record, which it must not keep
	tag     string                                  // of the records of requests without Robotsproxy-Tag
	fetched func(result string, took time.Duration) // called after each fetch of a robots.txt
	wrote   func(took time.Duration, err error)     // called after each write of records to the database
}

// newComponents creates the components that cfg describes. It does not listen.
func newComponents(cfg *config.Config, log *slog.Logger, observe observer) (_ *components, err error) {
	c := &components{contents: readContents(cfg)}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if err = checkOwnData(cfg); err != nil {
		return nil, err
	}
	if c.ca, err = openCA(cfg, log); err != nil {
		return nil, err
	}
	warnExpiry(c.ca, log)
	if c.guard, err = newGuard(cfg); err != nil {
		return nil, err
	}
	if cfg.Pacing.Key == config.PaceKeyIP {
		c.addresses = egress.NewAddresses(c.guard)
	}
	c.pseudonym = egress.NewPseudonym()
	transport, err := newTransport(cfg, c.guard, c.pseudonym)
	if err != nil {
		return nil, err
	}
	c.observe, c.changes = observe, newChangeReports(log)
	if err = c.openStores(cfg, log); err != nil {
		return nil, err
	}
	if c.files, err = newFiles(cfg, transport, c.keptFiles(), c.paused(cfg), c.changes.add, log, c.fetchOptions(cfg)); err != nil {
		return nil, err
	}
	c.watch.begin(c.shared, c.files.Cache)
	if c.certificates, err = newCertificates(cfg); err != nil {
		return nil, err
	}
	c.control = c.newControl(cfg, log, observe)
	in := inputs{cfg: cfg, guard: c.guard, transport: transport}
	if in.interventions, err = storedInterventions(c.state, log); err != nil {
		return nil, err
	}
	if in.exemptions, err = c.state.Exemptions(context.Background()); err != nil {
		return nil, err
	}
	c.interventions = &interventions{control: c.control, state: c.state, log: log}
	c.exemptions = &exemptions{c.control, c.state, log, c.redis}
	if c.server, c.fetches, err = c.control.start(in); err != nil {
		return nil, err
	}
	if c.redis != nil {
		err = c.interventions.share(c.redis, cfg)
	}
	return c, err
}

// openStores opens what keeps a state: state.db, the servers that instances share, and the records. It creates the
// limiter, whose lanes they pace.
func (c *components) openStores(cfg *config.Config, log *slog.Logger) (err error) {
	state := store.Options{Path: stateFile(cfg), MaxSize: int64(cfg.Store.MaxSize), Used: c.isUsed}
	if c.state, err = store.Open(state); err != nil {
		return err
	}
	if c.redis, err = newRedis(cfg, log); err != nil {
		return err
	}
	if c.postgres, err = newPostgres(cfg, c.state, log); err != nil {
		return err
	}
	c.shareFiles(cfg, log)
	if c.ids.Instance, err = c.instanceNumber(cfg, log); err != nil {
		return err
	}
	if c.limiter, err = newLimiter(cfg, c.redis, c.state); err != nil {
		return err
	}
	if c.kept, err = newRecordStore(cfg, c.postgres); err != nil {
		return err
	}
	c.records, err = newRecords(cfg, observedStore(c.kept, c.observe.wrote), log)
	return err
}

// newControl returns the control with the parts of the server and of the proxy's own requests that a reload keeps.
func (c *components) newControl(cfg *config.Config, log *slog.Logger, observe observer) *control {
	pace, recorder := c.pace(cfg), observedRecorder{c.records, observe}
	control := &control{log: log}
	control.parts = proxy.Options{
		Snapshots: c.files, Limiter: c.limiter, Authority: c.ca, Recorder: recorder, Pace: pace,
		Pseudonym: c.pseudonym, IDs: &c.ids, Onboarding: newOnboarding(cfg, c.ca), Logger: log,
		HeaderTimeout: cfg.Limits.HeaderTimeout, IdleTimeout: cfg.Limits.IdleTimeout, ProxyProtocol: cfg.ProxyProtocol,
	}
	if c.certificates != nil {
		control.parts.TLS = c.certificates.TLS()
	}
	control.ownParts = ownfetch.Options{
		Rules: c.files, Limiter: c.limiter, Key: pace.Key, Addr: pace.Addr, Recorder: recorder, IDs: &c.ids,
	}
	return control
}

// ownTransport sends the proxy's own requests, unless an operator has stopped their host.
type ownTransport struct {
	*components
	next http.RoundTripper
}

func (t ownTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.fetches.Send(t.next, r)
}

// instanceNumber returns the number of this instance in the ids of its records. If none is configured, it differs from
// the numbers of all instances that share the Redis server, or, without Redis, the PostgreSQL server, or, without both,
// from those of the next 1023 starts with this state.db.
func (c *components) instanceNumber(cfg *config.Config, log *slog.Logger) (func() int, error) {
	switch {
	case cfg.Audit.Instance >= 0:
	case c.redis != nil:
		return c.redis.Number, nil
	case c.postgres != nil:
		return c.postgres.takeNumber(log)
	}
	n := cfg.Audit.Instance
	if n < 0 {
		starts, err := c.state.CountStart(context.Background())
		if err != nil {
			log.Warn("the number of this instance is random", "err", err)
			starts = rand.Int64N(audit.Instances)
		}
		n = int(starts % audit.Instances)
	}
	return func() int { return n }, nil
}

// close closes the components that newComponents opened: those that send requests first, then those that pace them,
// then the stores that both write to. The records are last, because every other component may still write one,
// and their database after them.
func (c *components) close() error {
	var err error
	if c.server != nil {
		err = c.server.Close()
	}
	c.watch.stop()
	if c.files != nil {
		c.files.Close()
	}
	if c.limiter != nil {
		c.limiter.Close()
	}
	if c.redis != nil {
		err = errors.Join(err, c.redis.Close())
	}
	if c.state != nil {
		err = errors.Join(err, c.state.Close())
	}
	if c.records != nil {
		err = errors.Join(err, c.records.Close())
	}
	if c.kept != nil {
		err = errors.Join(err, c.kept.Close())
	}
	if c.postgres != nil {
		err = errors.Join(err, c.postgres.close())
	}
	return err
}

// runDaily prunes the state now and once a day until ctx ends, and warns once a day of a CA that expires soon.
// newComponents has given the first warning.
func (c *components) runDaily(ctx context.Context, log *slog.Logger) {
	day := time.NewTicker(24 * time.Hour)
	defer day.Stop()
	for {
		prune(ctx, c.state, log)
		if c.postgres != nil {
			c.postgres.prune(ctx, log)
		}
		select {
		case <-day.C:
			warnExpiry(c.ca, log)
		case <-ctx.Done():
			return
		}
	}
}

// explicitZero returns -1 for a configured 0: in the Options of the packages, 0 selects the default, and a negative
// value means zero or no limit.
func explicitZero[T int | time.Duration](v T) T {
	if v == 0 {
		return -1
	}
	return v
}

// isUsed reports whether the robots.txt of o is in memory and was used recently.
func (c *components) isUsed(o origin.Origin) bool { return c.files != nil && c.files.Used(o) }

func newLimiter(cfg *config.Config, redis *redislease.Client, pauses ratelimit.Pauses) (*ratelimit.Limiter, error) {
	var coordinator ratelimit.Coordinator
	if redis != nil {
		coordinator = redis
	}
	o := limiterOptions(cfg)
	o.Coordinator, o.Pauses = coordinator, pauses
	return ratelimit.New(o)
}

func limiterOptions(cfg *config.Config) ratelimit.Options {
	return ratelimit.Options{
		MaxQueue: cfg.Pacing.MaxQueue, MaxQueuePerClient: cfg.Pacing.MaxQueuePerClient,
		MaxConcurrent: explicitZero(cfg.Pacing.MaxConcurrent),
		DefaultDelay:  cfg.Pacing.DefaultDelay, DefaultBurst: cfg.Pacing.DefaultBurst,
		ReleaseAfter: cfg.Pacing.ReleaseAfter, SpacingStart: cfg.Pacing.Spacing == config.SpacingStart,
	}
}

// stopKey returns a function that returns the name under which the operator stops or slows a canonical host. It is that
// of the host's lane too, unless requests are paced by address.
func stopKey(cfg *config.Config) func(host string) string {
	if cfg.Pacing.Key != config.PaceKeyDomain {
		return origin.Key
	}
	return func(host string) string { return ratelimit.Domain(origin.Key(host)) }
}

// paused returns a function that returns the end of the pause of a host's lane. If requests are paced by address, that
// is the lane of the address to which the last request for the host was sent: a look at a pause resolves no name.
func (c *components) paused(cfg *config.Config) func(host string) time.Time {
	return func(host string) time.Time {
		key, ok := c.lastLane(cfg, host)
		if !ok {
			return time.Time{}
		}
		return c.limiter.Paused(key)
	}
}

// lastLane returns the name of the lane of the last request for host. It returns false if there was none.
func (c *components) lastLane(cfg *config.Config, host string) (key string, ok bool) {
	if c.addresses == nil {
		return stopKey(cfg)(host), true
	}
	addr, ok := c.addresses.Last(host)
	return origin.AddrKey(addr), ok
}

// pause returns the state of a host that has pushed back, for the log of requests.
func (c *components) pause(cfg *config.Config, host string) requestlog.Pause {
	key, ok := c.lastLane(cfg, host)
	if !ok {
		return requestlog.Pause{}
	}
	v, _ := c.limiter.Peek(key)
	return requestlog.Pause{Until: v.PausedUntil, Source: string(v.PauseSource), Waiting: v.Waiting}
}

// fetchOptions makes the cache judge and record its requests for robots.txt files, and space those to one host.
func (c *components) fetchOptions(cfg *config.Config) cacheOption {
	return func(f *fetch.Options, o *robots.CacheOptions) {
		f.Transport = ownTransport{c, f.Transport}
		if fetched := c.observe.fetched; fetched != nil {
			o.Fetched = func(a *robots.Answer, err error, took time.Duration) { fetched(fetchResult(a, err), took) }
		}
		f.Admit = func(ctx context.Context, hop fetch.Hop) (fetch.Visit, error) {
			return c.fetches.Admit(ctx, hop) // c.fetches is created after the cache
		}
		o.Spacing, o.MaxWait = c.spacing(cfg), max(cfg.Pacing.MaxWait, cfg.Robots.Timeout)
	}
}

// fetchResult returns the label of the result of a fetch for metrics.
func fetchResult(a *robots.Answer, err error) string {
	switch {
	case err != nil:
		return "error" // no answer about the site: its address may not be dialled, the upstream proxy fails, no caller waits
	case a.Availability == robots.Unreachable:
		return "unreachable"
	case a.Flags&robots.WebPage != 0:
		return "html"
	case a.Availability == robots.Unavailable:
		return "unavailable"
	case a.Validated():
		return "not_modified"
	default:
		return "found"
	}
}

// spacing returns a function that returns the time between a fetch of o's robots.txt and one from another port of its
// host: the Delay in force, or one second without a Delay. snap is the current file of o, or nil if none is known.
func (c *components) spacing(cfg *config.Config) func(o origin.Origin, snap *robots.Snapshot) time.Duration {
	key := stopKey(cfg)
	return func(o origin.Origin, snap *robots.Snapshot) time.Duration {
		in := c.control.inForce.Load()
		delay := fetchDelay(in, o, snap)
		if view, ok := c.limiter.Peek(key(o.Host())); ok {
			delay = max(delay, view.Floor)
		}
		return cmp.Or(delay, in.cfg.Pacing.DefaultDelay, time.Second)
	}
}

// fetchDelay returns the Delay for the proxy's own requests to o, by its file and the inputs.
func fetchDelay(in *inputs, o origin.Origin, snap *robots.Snapshot) (delay time.Duration) {
	if snap != nil {
		request := policy.Request{Client: ownClient(in.cfg), Origin: o, Target: "/robots.txt"}
		delay = in.policy.Judge(request, snap, time.Now()).Delay
	}
	return max(delay, in.policy.Floor(o.Host(), time.Now()))
}

// ownClient returns the client as which the proxy judges its own requests for robots.txt.
func ownClient(cfg *config.Config) policy.Client {
	return policy.Client{ProductToken: cmp.Or(cfg.Identity.Name, "*")}
}

func (c *components) pace(cfg *config.Config) proxy.Pace {
	pace := proxy.Pace{Key: stopKey(cfg)}
	if c.addresses != nil {
		pace.Addr = c.addresses.Of
	}
	return pace
}

func newPolicy(cfg *config.Config) (*policy.Policy, error) { return policy.New(policyOptions(cfg)) }

func policyOptions(cfg *config.Config) policy.Options {
	hosts := make([]policy.Host, len(cfg.Hosts))
	for i, h := range cfg.Hosts {
		hosts[i] = policy.Host{
			Pattern: h.Host, Mode: h.Mode, Dialect: h.Dialect, Delay: h.Delay, Interception: h.Intercept,
		}
	}
	return policy.Options{
		Mode: cfg.Mode, Dialect: cfg.Robots.Dialect, Hosts: hosts, Exemptions: cfg.Exemptions,
		Interception: cfg.Intercept.Mode, TunnelHosts: cfg.Intercept.TunnelHosts,
		RequireContact: cfg.Identity.RequireContact,
		MaxCrawlDelay:  cfg.Pacing.MaxCrawlDelay, RefuseOverMax: cfg.Pacing.OverMax == config.OverMaxRefuse,
		Usage: cfg.Usage, Clients: policyClients(cfg), Queries: string(cfg.Audit.Query),
	}
}

// policyClients returns all clients, the proxy as its own included.
func policyClients(cfg *config.Config) []policy.Client {
	clients := []policy.Client{ownClient(cfg)}
	for _, c := range newClients(cfg) {
		clients = append(clients, c.Client)
	}
	return clients
}

func newClients(cfg *config.Config) []proxy.Client {
	clients := make([]proxy.Client, len(cfg.Clients))
	for i, c := range cfg.Clients {
		clients[i] = proxy.Client{
			Client: policy.Client{
				Name: c.Name, ProductToken: c.ProductToken, Mode: c.Mode, Dialect: c.Dialect, MaxCrawlDelay: c.MaxCrawlDelay,
				Purpose: c.Purpose,
			},
			User: c.User, Subject: c.TLSSubject, UserAgent: c.UserAgent, Prefixes: c.CIDR, MaxWait: c.MaxWait,
			Pages: c.Subresources == config.SubresourcesPage,
		}
	}
	return clients
}

func newOnboarding(cfg *config.Config, ca *certs.Authority) http.Handler {
	if hasTLS(cfg) {
		return onboarding.SecureHandler(ca)
	}
	return onboarding.Handler(ca)
}

// newCertificates reads the files of tls. It returns nil if none are configured.
func newCertificates(cfg *config.Config) (*auth.Certificates, error) {
	if cfg.TLS.CertFile == "" {
		return nil, nil
	}
	c, err := auth.LoadCertificates(auth.CertificateFiles{
		Cert: cfg.TLS.CertFile, Key: cfg.TLS.KeyFile, ClientCA: cfg.TLS.ClientCAFile,
	})
	if err != nil {
		return nil, usage(fmt.Errorf("tls: %w", err))
	}
	return c, nil
}

// newUsers reads the htpasswd file, to replace before if that is not nil. It returns an error if the file does not list
// the user of a client, and nil if no file is configured.
func newUsers(cfg *config.Config, before *auth.Users) (users *auth.Users, err error) {
	if cfg.Auth.HtpasswdFile == "" {
		return nil, nil
	}
	if before != nil {
		users, err = before.Reload(cfg.Auth.HtpasswdFile)
	} else {
		users, err = auth.LoadUsers(cfg.Auth.HtpasswdFile)
	}
	if err != nil {
		return nil, usage(fmt.Errorf("auth.htpasswd_file: %w", err))
	}
	return users, checkUsers(cfg, users)
}

// checkUsers returns an error if users does not list the user of a client.
func checkUsers(cfg *config.Config, users *auth.Users) error {
	for _, client := range cfg.Clients {
		if client.User != "" && !users.Has(client.User) {
			return usage(fmt.Errorf("the user %q of the client %s has no line in %s",
				client.User, client.Name, cfg.Auth.HtpasswdFile))
		}
	}
	return nil
}

// observedStore returns kept, with wrote called after each write. It returns kept if wrote is nil.
func observedStore(kept audit.Store, wrote func(time.Duration, error)) audit.Store {
	if kept == nil || wrote == nil {
		return kept
	}
	return timedStore{kept, wrote}
}

type timedStore struct {
	audit.Store
	wrote func(time.Duration, error)
}

func (s timedStore) Write(ctx context.Context, entries []audit.Entry) error {
	begin := time.Now()
	err := s.Store.Write(ctx, entries)
	s.wrote(time.Since(begin), err)
	return err
}

// observedRecorder shows each record to its observer before it is written.
type observedRecorder struct {
	*audit.Recorder
	observer
}

func (r observedRecorder) Begin(ctx context.Context, rec *audit.Record) error {
	rec.Tag = cmp.Or(rec.Tag, r.tag)
	return r.Recorder.Begin(ctx, rec)
}

func (r observedRecorder) End(rec *audit.Record) {
	if r.ended != nil {
		r.ended(rec)
	}
	r.Recorder.End(rec)
}

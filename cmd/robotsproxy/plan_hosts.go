package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/egress"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
	"github.com/robotsproxy/robotsproxy/internal/plan"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/ownfetch"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
	"github.com/robotsproxy/robotsproxy/store"
)

// planFetches bounds the hosts that a plan asks at once. Many of them may be dead, and take robots.timeout each.
const planFetches = 256

// hosts judges the URLs of all hosts.
func (p *planner) hosts(ctx context.Context) ([]plan.Host, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	sites := p.spool.Sites()
	hosts := make([]plan.Host, len(sites))
	p.progress.hosts.Store(int64(len(sites)))
	groups := sameHost(sites)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(planFetches, maxFetches(p.cfg), len(groups)) {
		workers.Go(func() {
			for g := next.Add(1) - 1; g < int64(len(groups)); g = next.Add(1) - 1 {
				for _, i := range groups[g] {
					var err error
					if hosts[i], err = p.host(ctx, sites[i]); err != nil {
						cancel(err)
						return
					}
					hosts[i].Close()
					p.progress.done.Add(1)
				}
			}
		})
	}
	workers.Wait()
	return hosts, context.Cause(ctx)
}

// sameHost groups the indexes of sites by host. A host is asked for one file at a time, and package robots refuses fetches
// if many of one client wait for one host.
func sameHost(sites []*plan.Site) (groups [][]int) {
	known := make(map[string]int)
	for i, site := range sites {
		g, found := known[site.Origin.Host()]
		if !found {
			g = len(groups)
			known[site.Origin.Host()] = g
			groups = append(groups, nil)
		}
		groups[g] = append(groups[g], i)
	}
	return groups
}

// host judges the URLs of one host.
func (p *planner) host(ctx context.Context, site *plan.Site) (plan.Host, error) {
	h := plan.Host{Origin: site.Origin, Lane: stopKey(p.cfg)(site.Origin.Host())}
	request := p.request
	request.Origin = site.Origin
	snap, err := p.files.snapshot(ctx, request)
	var prohibited *egress.ProhibitedError
	switch {
	case ctx.Err() != nil:
		return h, ctx.Err()
	case errors.As(err, &prohibited):
		h.Refuse(plan.Refusal{Reason: policy.ReasonEgress, Rule: prohibited.Why(), URLs: site.URLs})
		return h, nil
	case err != nil:
		h.CountUnknown(site.URLs)
		h.Cause = plainError(err).Error()
		return h, nil
	case snap != nil:
		h.State = snap.State()
		h.AddSitemaps(snap.RulesFor(p.files.in.policy.Dialect(site.Origin.Host(), request.Client)).Sitemaps())
	}
	now := time.Now()
	for target, err := range p.spool.Targets(site) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return h, err
		}
		request.Target = target
		h.Count(p.files.in.policy.Decide(request, snap, now))
	}
	if h.Unknown > 0 {
		h.Cause = cause(snap)
	}
	return h, nil
}

// planFiles are the robots.txt files for a plan, with the policy that judges by them.
type planFiles struct {
	in     inputs
	state  *store.State
	lookUp func(context.Context, policy.Request) (*robots.Snapshot, error) // of the origin of a request
	end    func()
}

// openPlanFiles opens the files in the data folder. If estimate is false, others are fetched and kept there; it calls warn
// if they cannot be kept.
func openPlanFiles(ctx context.Context, cfg *config.Config, estimate bool, warn func(error)) (_ *planFiles, err error) {
	if err := checkPlanData(cfg, estimate); err != nil {
		return nil, err
	}
	f := &planFiles{in: inputs{cfg: enforced(cfg)}, end: func() {}}
	if f.state, err = store.Open(store.Options{Path: stateFile(cfg), MaxSize: int64(cfg.Store.MaxSize)}); err != nil {
		return nil, err
	}
	if err = f.readInputs(ctx); err == nil {
		if estimate {
			err = f.fromState()
		} else {
			err = f.fetch(warn)
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.state.Close())
	}
	return f, nil
}

// checkPlanData checks the data folder. A plan that fetches writes there, and must not make files that a proxy of another
// user cannot read.
func checkPlanData(cfg *config.Config, estimate bool) error {
	if !estimate {
		return checkOwnData(cfg)
	}
	if _, err := os.Stat(stateFile(cfg)); errors.Is(err, fs.ErrNotExist) {
		return usage(fmt.Errorf("%s has no robots.txt files (state.db is missing); without --estimate they are fetched", cfg.DataDir))
	}
	return checkData(cfg)
}

// readInputs reads the lists, interventions and exemptions.
func (f *planFiles) readInputs(ctx context.Context) (err error) {
	if f.in.lists, err = readHostLists(f.in.cfg, nil); err != nil {
		return err
	}
	all, err := f.state.Interventions(ctx)
	if err != nil {
		return err
	}
	f.in.interventions = current(all, time.Now())
	if f.in.exemptions, err = f.state.Exemptions(ctx); err != nil {
		return err
	}
	if err = f.in.compile(); err != nil {
		return usage(err)
	}
	return nil
}

func (f *planFiles) close() error {
	f.end()
	return f.state.Close()
}

// snapshot returns the file that judges r, or nil if none is needed.
func (f *planFiles) snapshot(ctx context.Context, r policy.Request) (*robots.Snapshot, error) {
	if _, stopped := f.in.policy.Stopped(r.Origin.Host(), time.Now()); stopped || !f.in.policy.NeedsRobots(r) {
		return nil, nil
	}
	return f.lookUp(ctx, r)
}

// planCache is the memory for the files of a plan, which needs each only once.
const planCache = 16 << 20

// fetch makes f fetch the files that the data folder does not have, as the proxy does.
func (f *planFiles) fetch(warn func(error)) error {
	guard, err := newGuard(f.in.cfg)
	if err != nil {
		return err
	}
	transport, err := newTransport(f.in.cfg, guard, "")
	if err != nil {
		return err
	}
	signers, err := newSigners(f.in.cfg)
	if err != nil {
		return err
	}
	by := ownfetch.Options{Policy: f.in.policy, Signer: signers.all}
	files, err := newCommandFiles(f.in.cfg, transport, by, func(_ *fetch.Options, o *robots.CacheOptions) {
		o.Store, o.StoreFailed, o.MaxBytes, o.MaxFetches = f.state, warn, planCache, maxFetches(f.in.cfg)
		o.Spacing, o.MaxWait = f.spacing, max(f.in.cfg.Pacing.MaxWait, f.in.cfg.Robots.Timeout)
	})
	if err != nil {
		return err
	}
	f.end = func() {
		files.Close()
		transport.CloseIdleConnections()
	}
	f.lookUp = func(ctx context.Context, r policy.Request) (*robots.Snapshot, error) {
		defer transport.CloseIdleConnections() // a host is asked once
		return files.Snapshot(ctx, r.Origin, robots.Asker{Client: "plan", Token: r.Client.ProductToken})
	}
	return nil
}

// spacing returns the time between the fetches for two ports of one host.
func (f *planFiles) spacing(o origin.Origin, snap *robots.Snapshot) time.Duration {
	return cmp.Or(fetchDelay(&f.in, o, snap), f.in.cfg.Pacing.DefaultDelay, time.Second)
}

// errNotKept is the cause for a host without a file in the data folder.
var errNotKept = errors.New("no robots.txt is kept")

// fromState makes f use the files in the data folder alone, and the operator's own.
func (f *planFiles) fromState() error {
	own, err := readOwn(f.in.cfg.Hosts)
	if err != nil {
		return err
	}
	f.lookUp = func(ctx context.Context, r policy.Request) (*robots.Snapshot, error) {
		if file := own.match(r.Origin.Host()); file != nil {
			return file, nil
		}
		kept, err := f.state.Load(ctx, r.Origin)
		if errors.Is(err, robots.ErrNoSnapshot) {
			return nil, errNotKept
		}
		if err != nil {
			return nil, err
		}
		snap := robots.NewSnapshot(kept.Answer)
		snap.Stale = kept.Stale
		return snap, nil
	}
	return nil
}

// planProgress counts for the line about the progress of a plan.
type planProgress struct {
	began             time.Time
	urls, hosts, done atomic.Int64 // hosts is 0 while the list is read
}

// barWidth is the number of signs of a bar.
const barWidth = 20

// text returns the line. It is empty in the first two seconds.
func (p *planProgress) text() string { return p.textAt(time.Since(p.began)) }

func (p *planProgress) textAt(passed time.Duration) string {
	urls, hosts, done := p.urls.Load(), p.hosts.Load(), p.done.Load()
	switch {
	case passed < 2*time.Second:
		return ""
	case hosts == 0:
		return "reading the list  " + auditview.Number(urls) + " URLs"
	}
	full := int(barWidth * done / hosts)
	text := fmt.Sprintf("reading robots.txt  [%s%s]  %s of %s hosts", strings.Repeat("#", full),
		strings.Repeat("·", barWidth-full), auditview.Number(done), auditview.Number(hosts))
	if done == 0 {
		return text
	}
	left := math.Ceil(passed.Seconds() * float64(hosts-done) / float64(done))
	return text + "   " + auditview.Duration(time.Duration(left)*time.Second) + " left"
}

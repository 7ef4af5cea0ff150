package main

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/auth"
	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/egress"
	"github.com/robotsproxy/robotsproxy/ownfetch"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/proxy"
	"github.com/robotsproxy/robotsproxy/store"
)

// inputs are all that decides about requests. They do not change: each change makes others.
type inputs struct {
	cfg       *config.Config
	users     *auth.Users  // of auth.htpasswd_file
	limits    proxy.Limits // of cfg, and of the descriptors that the system grants
	guard     *egress.Guard
	transport *egress.Transport
	lists     hostLists // of the keys deny_hosts_file
	signers   signers   // of the sections sign

	interventions []policy.Intervention
	exemptions    []store.Exemption // that operators have added

	policy *policy.Policy // compiled from the others
}

// compile sets what follows from the rest of in.
func (in *inputs) compile() (err error) {
	o := policyOptions(in.cfg)
	o.Exemptions = slices.Clip(o.Exemptions)
	for _, e := range in.exemptions {
		o.Exemptions = append(o.Exemptions, e.Exemption)
	}
	o.Access, o.ClientAccess = in.lists.access(in.cfg)
	o.Interventions = in.interventions
	in.policy, err = policy.New(o)
	return err
}

// control replaces what decides about requests while they are served: the policy and the settings of the proxy and of
// its own fetches. A change is complete or has no effect.
type control struct {
	log      *slog.Logger
	parts    proxy.Options    // the parts of the server that never change
	ownParts ownfetch.Options // those of fetches
	server   *proxy.Server
	fetches  *ownfetch.Fetches

	inForce atomic.Pointer[inputs] // replaced with mu locked
	mu      sync.Mutex             // orders the changes: each begins with the inputs that the one before has made

	ordering   sync.Mutex  // held by order, follow and handOver; guards handedOver
	handedOver bool        // to another process, from which orders come now
	prior      *oldProcess // follows the orders too; may be nil
}

// start makes the server and the fetches from in.
func (c *control) start(in inputs) (*proxy.Server, *ownfetch.Fetches, error) {
	var err error
	if in.users, err = newUsers(in.cfg, nil); err != nil {
		return nil, nil, err
	}
	if in.lists, err = readHostLists(in.cfg, nil); err != nil {
		return nil, nil, err
	}
	if in.signers, err = newSigners(in.cfg); err != nil {
		return nil, nil, err
	}
	in.limits = newLimits(in.cfg, c.log)
	if err := in.compile(); err != nil {
		return nil, nil, err
	}
	if c.server, err = proxy.New(c.proxyOptions(in)); err != nil {
		return nil, nil, err
	}
	c.fetches = ownfetch.New(c.fetchOptions(in))
	c.inForce.Store(&in)
	return c.server, c.fetches, nil
}

// interventions returns the interventions that were put in force last. Some may have ended.
func (c *control) interventions() []policy.Intervention { return c.inForce.Load().interventions }

// intervene puts interventions in force, in place of those before, and ends the requests that they stop. When it
// returns, nothing more is sent to a host that is stopped.
func (c *control) intervene(all []policy.Intervention) (proxy.Ended, error) {
	return c.order(func(in *inputs) error {
		in.interventions = all
		return nil
	})
}

// policy returns the policy in force.
func (c *control) policy() *policy.Policy { return c.inForce.Load().policy }

// config returns the configuration in force.
func (c *control) config() *config.Config { return c.inForce.Load().cfg }

// apply puts the inputs that with makes of the present ones in force. Requests that wait are judged by them when they
// have their place. If with or the inputs are wrong, apply changes nothing. Changes come one after the other: with may
// write to the store what the inputs must agree with.
func (c *control) apply(with func(*inputs) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := *c.inForce.Load()
	if err := with(&next); err != nil {
		return err
	}
	if err := next.compile(); err != nil {
		return err
	}
	if err := c.server.Reload(c.proxyOptions(next)); err != nil {
		return err
	}
	c.fetches.Reload(c.fetchOptions(next))
	c.inForce.Store(&next)
	return nil
}

func (c *control) proxyOptions(in inputs) proxy.Options {
	o, cfg := c.parts, in.cfg
	o.Guard, o.Transport = in.guard, in.transport
	o.Policy, o.Clients, o.Users, o.AuthRequired = in.policy, in.signers.clients(newClients(cfg)), in.users, cfg.Auth.Required
	o.Signer = in.signers.all
	o.MaxWait, o.MaxWaitCap = explicitZero(cfg.Pacing.MaxWait), cfg.Pacing.MaxWaitCap
	o.UserAgent, o.Contact = cfg.UserAgent, cfg.Identity.Contact
	o.RefusalStatus, o.ResponseFields, o.UsageHTML = cfg.Refusal.Status, cfg.ResponseFields, cfg.UsageHTML
	o.ServeRobots, o.Limits = cfg.Robots.ServeFromCache, in.limits
	o.Query, o.ClientAddr = audit.QueryMode(cfg.Audit.Query), audit.AddrMode(cfg.Audit.ClientAddr)
	return o
}

func (c *control) fetchOptions(in inputs) ownfetch.Options {
	o := c.ownParts
	o.Policy, o.Client, o.Query = in.policy, ownClient(in.cfg), audit.QueryMode(in.cfg.Audit.Query)
	o.Signer = in.signers.all
	return o
}

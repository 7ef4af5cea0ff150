package main

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/auth"
	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/ownfetch"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/proxy"
)

// inputs are all that decides about requests. They do not change: each change makes others.
type inputs struct {
	cfg    *config.Config
	users  *auth.Users  // of auth.htpasswd_file
	limits proxy.Limits // of cfg, and of the descriptors that the system grants
}

// policy compiles in.
func (in inputs) policy() (*policy.Policy, error) {
	return policy.New(policyOptions(in.cfg))
}

// control replaces what decides about requests while they are served: the policy and the settings of the proxy and of
// its own fetches. A change is complete or has no effect.
type control struct {
	log      *slog.Logger
	parts    proxy.Options    // the parts of the server that never change
	ownParts ownfetch.Options // those of fetches
	server   *proxy.Server
	fetches  *ownfetch.Fetches

	inForce atomic.Pointer[policy.Policy]

	mu sync.Mutex // orders the changes; guards in
	in inputs
}

// start makes the server and the fetches from in.
func (c *control) start(in inputs) (*proxy.Server, *ownfetch.Fetches, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	if in.users, err = newUsers(in.cfg); err != nil {
		return nil, nil, err
	}
	in.limits = newLimits(in.cfg, c.log)
	p, err := in.policy()
	if err != nil {
		return nil, nil, err
	}
	if c.server, err = proxy.New(c.proxyOptions(in, p)); err != nil {
		return nil, nil, err
	}
	c.fetches = ownfetch.New(c.fetchOptions(in, p))
	c.inForce.Store(p)
	c.in = in
	return c.server, c.fetches, nil
}

// policy returns the policy in force.
func (c *control) policy() *policy.Policy { return c.inForce.Load() }

// apply puts the inputs that with makes of the present ones in force. Requests that wait are judged by them when they
// have their place. If with or the inputs are wrong, apply changes nothing. Changes come one after the other: with may
// write to the store what the inputs must agree with.
func (c *control) apply(with func(*inputs) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.in
	if err := with(&next); err != nil {
		return err
	}
	p, err := next.policy()
	if err != nil {
		return err
	}
	if err := c.server.Reload(c.proxyOptions(next, p)); err != nil {
		return err
	}
	c.fetches.Reload(c.fetchOptions(next, p))
	c.inForce.Store(p)
	c.in = next
	return nil
}

func (c *control) proxyOptions(in inputs, p *policy.Policy) proxy.Options {
	o, cfg := c.parts, in.cfg
	o.Policy, o.Clients, o.Users, o.AuthRequired = p, newClients(cfg), in.users, cfg.Auth.Required
	o.MaxWait, o.MaxWaitCap = explicitZero(cfg.Pacing.MaxWait), cfg.Pacing.MaxWaitCap
	o.RefusalStatus, o.ResponseFields = cfg.Refusal.Status, cfg.ResponseFields
	o.ServeRobots, o.Query, o.Limits = cfg.Robots.ServeFromCache, audit.QueryMode(cfg.Audit.Query), in.limits
	return o
}

func (c *control) fetchOptions(in inputs, p *policy.Policy) ownfetch.Options {
	o := c.ownParts
	o.Policy, o.Client, o.Query = p, ownClient(in.cfg), audit.QueryMode(in.cfg.Audit.Query)
	return o
}

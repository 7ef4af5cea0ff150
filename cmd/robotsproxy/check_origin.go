package main

import (
	"context"
	"net/http"
	"net/netip"
	"sync"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/egress"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/ownfetch"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// fromOrigin returns a function that returns the operator's own file for an origin, or fetches it as the proxy does,
// through the same upstream proxy. The targets of redirects to other hosts are judged by the proxy's configuration, and
// paced. The function can be called until ctx ends, which ends its goroutines and connections.
func fromOrigin(ctx context.Context, cfg *config.Config) (func(context.Context, origin.Origin) (*robots.Snapshot, error), error) {
	transport, err := newCommandLineTransport(cfg)
	if err != nil {
		return nil, err
	}
	judge, err := newPolicy(cfg)
	if err != nil {
		return nil, usage(err)
	}
	f, err := newCommandFiles(cfg, transport, ownfetch.Options{Policy: judge}, func(*fetch.Options, *robots.CacheOptions) {})
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() {
		f.Close()
		transport.closeIdleConnections()
	})
	return func(ctx context.Context, o origin.Origin) (*robots.Snapshot, error) {
		transport.hosts.Store(o.Host(), true)
		return f.Snapshot(ctx, o, robots.Asker{})
	}, nil
}

// newCommandFiles returns the files that a command fetches. by has the Policy that judges redirects to other hosts; its
// rules, client and limiter are set here.
func newCommandFiles(cfg *config.Config, transport http.RoundTripper, by ownfetch.Options, option cacheOption) (*files, error) {
	own, err := readOwn(cfg.Hosts)
	if err != nil {
		return nil, err
	}
	if by.Limiter, err = newLimiter(cfg, nil, nil); err != nil {
		return nil, usage(err)
	}
	f := &files{}
	f.own.Store(&own)
	by.Rules, by.Client = f, ownClient(cfg)
	fetches := ownfetch.New(by)
	f.Cache, err = newCache(cfg, transport, func(o *fetch.Options, c *robots.CacheOptions) {
		o.Admit = fetches.Admit
		option(o, c)
	})
	return f, err
}

// commandLineTransport sends requests to the hosts of the command line without the guard on addresses: the user may ask
// about any host. Redirects are chosen by sites, so it guards their targets as the proxy does.
type commandLineTransport struct {
	hosts         sync.Map // canonical
	free, guarded *egress.Transport
}

func newCommandLineTransport(cfg *config.Config) (*commandLineTransport, error) {
	guard, err := newGuard(cfg)
	if err != nil {
		return nil, err
	}
	guarded, err := newTransport(cfg, guard, "")
	if err != nil {
		return nil, err
	}
	upstream, err := newUpstream(cfg)
	if err != nil {
		return nil, err
	}
	unguarded := egress.New(egress.Options{
		Allow: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
		Ports: []egress.PortRange{{First: 1, Last: 65535}}, Resolve: cfg.Egress.Resolve, Upstream: upstream,
	})
	free, err := newTransport(cfg, unguarded, "")
	if err != nil {
		return nil, err
	}
	return &commandLineTransport{free: free, guarded: guarded}, nil
}

func (t *commandLineTransport) closeIdleConnections() {
	t.free.CloseIdleConnections()
	t.guarded.CloseIdleConnections()
}

// RoundTrip sends r, whose URL has a canonical host.
func (t *commandLineTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, ok := t.hosts.Load(r.URL.Hostname()); ok {
		return t.free.RoundTrip(r)
	}
	return t.guarded.RoundTrip(r)
}

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
)

// fromOrigin returns the operator's own file, or fetches as the proxy does, by the same upstream proxy. A redirect to
// a page of another host is judged by the rules and the exemptions that the proxy goes by, and keeps a pace of its
// own.
func fromOrigin(cfg *config.Config) (func(context.Context, origin.Origin) (*robots.Snapshot, error), error) {
	own, err := readOwn(cfg.Hosts)
	if err != nil {
		return nil, err
	}
	transport, err := newCommandLineTransport(cfg)
	if err != nil {
		return nil, err
	}
	judge, err := newPolicy(cfg)
	if err != nil {
		return nil, usage(err)
	}
	limiter, err := newLimiter(cfg, nil, nil)
	if err != nil {
		return nil, usage(err)
	}
	f := &files{own: own}
	fetches := ownfetch.New(ownfetch.Options{Rules: f, Policy: judge, Client: ownClient(cfg), Limiter: limiter})
	if f.Cache, err = newCache(cfg, transport, func(o *robots.FetcherOptions, _ *robots.CacheOptions) { o.Admit = fetches.Admit }); err != nil {
		return nil, err
	}
	return func(ctx context.Context, o origin.Origin) (*robots.Snapshot, error) {
		transport.hosts.Store(o.Host(), true)
		return f.Snapshot(ctx, o, robots.Asker{})
	}, nil
}

// typed sends requests to hosts that a person has typed, who may ask about any, without the guard on addresses. Where
// they redirect to a stranger has written, and is guarded as in the proxy.
type commandLineTransport struct {
	hosts         sync.Map // canonical
	free, guarded http.RoundTripper
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
	none := egress.New(egress.Options{
		Allow: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
		Ports: []egress.PortRange{{First: 1, Last: 65535}}, Resolve: cfg.Egress.Resolve, Upstream: upstream,
	})
	free, err := newTransport(cfg, none, "")
	if err != nil {
		return nil, err
	}
	return &commandLineTransport{free: free, guarded: guarded}, nil
}

// RoundTrip sends r, whose URL has a canonical host.
func (t *commandLineTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, ok := t.hosts.Load(r.URL.Hostname()); ok {
		return t.free.RoundTrip(r)
	}
	return t.guarded.RoundTrip(r)
}

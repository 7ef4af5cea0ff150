package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/certs"
	"github.com/robotsproxy/robotsproxy/egress"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/ratelimit"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
	"github.com/robotsproxy/robotsproxy/rules"
)

// rig is a proxy with all its real parts between a client and a fake site.
type rig struct {
	t       testing.TB
	site    *robotstest.Site
	server  *Server
	addr    string
	records *recorder
	limiter *ratelimit.Limiter
	ca      *x509.CertPool
	log     *bytes.Buffer
}

// siteTransport is the transport of a rig that trusts its site.
type siteTransport struct {
	*egress.Transport
	roots *x509.CertPool
}

// newRig starts one. change may replace parts before the server is made.
func newRig(t testing.TB, change func(*Options)) *rig {
	t.Helper()
	r := &rig{t: t, site: robotstest.New(t), records: &recorder{}, log: &bytes.Buffer{}}
	resolve := make(map[string]netip.Addr)
	for _, host := range []string{"a.example", "b.example", "xn--bcher-kva.example", "expired.example", "wrong-name.example", "untrusted.example"} {
		resolve[host] = netip.MustParseAddr("127.0.0.1")
	}
	guard := egress.New(egress.Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Resolve: resolve})
	transport := egress.NewTransport(egress.TransportOptions{Guard: guard, RootCAs: r.site.CAPool()})
	t.Cleanup(transport.CloseIdleConnections)
	o := Options{
		Snapshots: r.newCache(transport), Policy: r.newPolicy(policy.Options{}), Recorder: r.records,
		Guard: guard, Transport: siteTransport{transport, r.site.CAPool()}, Authority: r.newAuthority(), Logger: slog.New(slog.NewTextHandler(r.log, nil)),
	}
	var err error
	if r.limiter, err = ratelimit.New(ratelimit.Options{}); err != nil {
		t.Fatal(err)
	}
	o.Limiter = r.limiter
	if change != nil {
		change(&o)
	}
	if r.server, err = New(o); err != nil {
		t.Fatal(err)
	}
	r.serve()
	return r
}

// change replaces options that the next requests read. It does not check them, as Reload does.
func (r *rig) change(with func(*Options)) {
	now := r.server.settings.Load()
	o := now.Options
	with(&o)
	r.server.settings.Store(newSettings(o, now.version+1))
}

// stop puts p in force with a stop of a.example, and ends what that stops.
func (r *rig) stop(p policy.Options, until time.Time) Ended {
	p.Interventions = append(p.Interventions, policy.Intervention{
		Kind: policy.Stop, Host: "a.example", Reason: "the owner asked", By: "ops", Until: until,
	})
	r.change(func(o *Options) { o.Policy = r.newPolicy(p) })
	return r.server.EndStopped()
}

func (r *rig) newCache(transport http.RoundTripper) *robots.Cache {
	fetcher, err := fetch.New(fetch.Options{
		Transport: transport, UserAgent: "robotsproxy/test",
		Prohibited: egress.Prohibited, UpstreamFailed: egress.UpstreamFailed, Exhausted: egress.Exhausted,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	cache, err := robots.NewCache(robots.CacheOptions{Fetch: fetcher.Fetch})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(cache.Close)
	return cache
}

func (r *rig) newPolicy(o policy.Options) *policy.Policy {
	p, err := policy.New(o)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

func (r *rig) newAuthority() *certs.Authority {
	ca, err := certs.Open(certs.Options{Dir: r.t.TempDir()})
	if err != nil {
		r.t.Fatal(err)
	}
	r.ca = x509.NewCertPool()
	r.ca.AppendCertsFromPEM(ca.PEM())
	return ca
}

func (r *rig) serve() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	r.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- r.server.Serve(l) }()
	r.t.Cleanup(func() {
		r.server.Close()
		if err := <-served; err != nil {
			r.t.Errorf("Serve: %v", err)
		}
		for _, fault := range r.records.faults {
			r.t.Error(fault)
		}
		if n, bytes := r.server.requests.InUse(), r.server.memory.InUse(); n != 0 || bytes != 0 {
			r.t.Errorf("%d requests that hold %d bytes are still counted", n, bytes)
		}
	})
}

// url returns the URL of a path on a.example.
func (r *rig) url(scheme, path string) string {
	port := r.site.Port()
	if scheme == "https" {
		port = r.site.TLSPort()
	}
	return fmt.Sprintf("%s://a.example:%d%s", scheme, port, path)
}

// client returns a client that goes through the proxy, over HTTP/2 inside tunnels unless told otherwise.
func (r *rig) client(http1 bool) *http.Client {
	proxyURL := &url.URL{Scheme: "http", Host: r.addr}
	t := &http.Transport{
		Proxy: http.ProxyURL(proxyURL), TLSClientConfig: &tls.Config{RootCAs: r.ca}, DisableCompression: true,
		ForceAttemptHTTP2: !http1, ExpectContinueTimeout: 5 * time.Second,
	}
	r.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// get fetches a URL whole.
func (r *rig) get(c *http.Client, url string) (*http.Response, []byte) {
	r.t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		r.t.Fatalf("GET %s: %v", url, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatalf("GET %s: reading the body: %v", url, err)
	}
	return resp, body
}

// raw sends octets on a connection of its own and returns it.
func (r *rig) raw(octets string) net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, octets); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// eventually waits for what happens soon after an answer: records and releases.
func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("%s did not come about; records: %+v", what, r.records.all())
		}
	}
}

// heldPage has a.example answer for /held when release is called, and not before.
func (r *rig) heldPage() (release func()) {
	held := make(chan struct{})
	r.site.SetPage("a.example", "/held", func(_ http.ResponseWriter, req *http.Request) {
		select {
		case <-held:
		case <-req.Context().Done():
		}
	})
	return func() { close(held) }
}

// refuses reports whether the proxy takes no connections any more.
func (r *rig) refuses() bool {
	conn, err := net.Dial("tcp", r.addr)
	if err == nil {
		conn.Close()
	}
	return err != nil
}

// recorder keeps records in memory, and can refuse.
type recorder struct {
	mu     sync.Mutex
	refuse bool
	begun  int
	ended  []audit.Record
	faults []string
}

func (r *recorder) Begin(_ context.Context, rec *audit.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.check(rec)
	if r.refuse {
		return audit.ErrUnavailable
	}
	r.begun++
	return nil
}

func (r *recorder) End(rec *audit.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.check(rec)
	r.ended = append(r.ended, *rec)
}

// check notes a record that has no decision, or a decision other than allow without a reason. newRig reports it.
func (r *recorder) check(rec *audit.Record) {
	if !slices.Contains(policy.Outcomes, rec.Decision) || rec.Reason == policy.ReasonNone && rec.Decision != policy.Allow {
		r.faults = append(r.faults, fmt.Sprintf("decision %q, reason %q: %+v", rec.Decision, rec.Reason, *rec))
	}
}

func (r *recorder) refuseFrom(now bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = now
}

func (r *recorder) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = nil
}

func (r *recorder) all() []audit.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ended)
}

// last waits until n records are complete and returns the last.
func (r *rig) last(n int) audit.Record {
	r.t.Helper()
	r.eventually(fmt.Sprintf("record %d", n), func() bool { return len(r.records.all()) >= n })
	return r.records.all()[n-1]
}

// snapshots answers look-ups without a fetch.
type snapshots func(context.Context, origin.Origin) (*robots.Snapshot, error)

func (f snapshots) Snapshot(ctx context.Context, o origin.Origin, _ robots.Asker) (*robots.Snapshot, error) {
	return f(ctx, o)
}

func (snapshots) Kept(origin.Origin) *robots.Snapshot { return nil }

func fixed(body string) snapshots {
	snap := &robots.Snapshot{Answer: robots.Answer{Availability: robots.Found, Status: 200, Body: []byte(body)}, Rules: rules.Parse([]byte(body), rules.Options{})}
	return func(context.Context, origin.Origin) (*robots.Snapshot, error) { return snap, nil }
}

var errNotThere = errors.New("not there")

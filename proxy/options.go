package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/auth"
	"github.com/robotsproxy/robotsproxy/certs"
	"github.com/robotsproxy/robotsproxy/egress"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/ratelimit"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/sign"
)

// Snapshots finds the robots.txt of an origin.
type Snapshots interface {
	// Kept returns the newest copy in memory, fresh or not, or nil. It does not wait.
	Kept(o origin.Origin) *robots.Snapshot

	// Snapshot returns a fresh copy for asker. A failed fetch is a Snapshot too; an error means that there was no fetch.
	Snapshot(ctx context.Context, o origin.Origin, asker robots.Asker) (*robots.Snapshot, error)
}

// Recorder keeps records.
type Recorder interface {
	// Begin is called once the decision is made and before anything is sent or answered. Its error refuses the request.
	Begin(ctx context.Context, r *audit.Record) error

	// End is called once for each record that was begun, when the request has ended.
	End(r *audit.Record)
}

// Options are the parts that a Server works with, and its settings. Those without a default are required. Most can be
// changed while the Server serves: see Server.Reload.
type Options struct {
	Snapshots Snapshots
	Policy    *policy.Policy
	Limiter   *ratelimit.Limiter
	Authority *certs.Authority
	Recorder  Recorder
	Guard     *egress.Guard

	// Transport sends requests to origins. It must dial through Guard.
	Transport http.RoundTripper

	// Clients may use the proxy. A request is of the first Client that matches. If nil, every user is a Client, and unless
	// AuthRequired is set, everybody else is the Client "local".
	Clients []Client

	// Users are the users and their passwords. If nil, credentials are ignored.
	Users *auth.Users

	// TLS is the configuration of TLS between clients and the Server. It must offer no protocol but HTTP/1.1. The
	// certificates that it verifies identify clients: see Client.Subject. If nil, clients speak without TLS.
	TLS *tls.Config

	// ProxyProtocol are the addresses of load balancers. A connection from one begins with a PROXY header, version 1 or 2,
	// which names the client. From other addresses a header is malformed.
	ProxyProtocol []netip.Prefix

	// AuthRequired refuses requests without credentials. It needs Users.
	AuthRequired bool

	// MaxWait is the longest wait of a request for its place in the lane. If zero, 150 s; if negative, requests do not
	// wait.
	MaxWait time.Duration

	// MaxWaitCap is the longest wait that a request may prefer to MaxWait (Prefer: wait). If zero, MaxWait.
	MaxWaitCap time.Duration

	// Pace says which hosts share a lane.
	Pace Pace

	// UserAgent replaces the User-Agent of the requests of clients without their own. If empty, that of the client is
	// sent.
	UserAgent string

	// Signer signs the requests of clients without their own. If nil, they are sent without a signature.
	Signer *sign.Signer

	// Contact is how clients reach the operator: a URL or a mail address, for the body of refusals. It may be empty.
	Contact string

	// RefusalStatus is the status of refusals by robots.txt. If zero, 403.
	RefusalStatus int

	// Pseudonym is the name of the proxy in Via. If empty, it is random: see egress.NewPseudonym.
	Pseudonym string

	// UsageHTML records the preferences in the head of HTML pages.
	UsageHTML bool

	// ResponseFields adds Robotsproxy-Request-Id and Robotsproxy-Waited to forwarded answers.
	ResponseFields bool

	// ServeRobots answers requests for /robots.txt with the file that is enforced.
	ServeRobots bool

	// IDs numbers the records. ownfetch must use the same. If nil, the Server has a sequence for itself.
	IDs *audit.Sequence

	// Query is the treatment of queries in records. If zero, credentials are masked.
	Query audit.QueryMode

	// ClientAddr is the treatment of clients' addresses in records and in the log. If zero, they are kept.
	ClientAddr audit.AddrMode

	// HeaderTimeout limits the time for a request's header, and that for a TLS handshake. If zero, 10 s.
	HeaderTimeout time.Duration

	// IdleTimeout limits the time between two requests on a connection, and that without traffic in a WebSocket or a raw
	// tunnel. If zero, 2 minutes.
	IdleTimeout time.Duration

	// Limits cap the resources of clients. The zero value caps nothing.
	Limits Limits

	// Onboarding answers requests for the proxy itself. The URL of one that came through the proxy is absolute. If nil,
	// 404.
	Onboarding http.Handler

	// Logger logs. If nil, nothing is logged.
	Logger *slog.Logger
}

// complete sets the defaults, or returns an error for contradictions.
func (o *Options) complete() error {
	if o.Snapshots == nil || o.Policy == nil || o.Limiter == nil || o.Authority == nil ||
		o.Recorder == nil || o.Guard == nil || o.Transport == nil {
		return errors.New("proxy: New needs Snapshots, Policy, Limiter, Authority, Recorder, Guard and Transport")
	}
	if o.AuthRequired && o.Users == nil {
		return errors.New("proxy: AuthRequired without Users would refuse every request")
	}
	if o.MaxWait == 0 {
		o.MaxWait = 150 * time.Second
	}
	o.MaxWait = max(0, o.MaxWait)
	if o.HeaderTimeout == 0 {
		o.HeaderTimeout = 10 * time.Second
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = 2 * time.Minute
	}
	if o.Pace.Key == nil {
		o.Pace.Key = origin.Key
	}
	if o.Pseudonym == "" {
		o.Pseudonym = egress.NewPseudonym()
	}
	if o.IDs == nil {
		o.IDs = new(audit.Sequence)
	}
	if o.Onboarding == nil {
		o.Onboarding = http.NotFoundHandler()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// settings are Options in force, and what follows from them. They do not change: Reload makes others.
type settings struct {
	Options
	version int                // the number of the settings that were in force before
	byUser  map[string]*Client // the clients if Options.Clients is nil
}

// newSettings returns the settings of complete Options.
func newSettings(o Options, version int) *settings {
	return &settings{o, version, clientsByUser(o.Users)}
}

// withoutPolicy returns s for an exchange that may be open for days. Its request has been judged, and a Policy that
// Reload has replaced may be large.
func (s *settings) withoutPolicy() *settings {
	without := *s
	without.Policy = nil
	return &without
}

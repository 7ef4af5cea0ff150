// Package policy decides whether a request may be sent, from robots.txt, the client and the operator's configuration.
//
//	p, err := policy.New(policy.Options{Mode: policy.Enforce})
//	d := p.Decide(policy.Request{Origin: o, Target: "/private", UserAgent: "NewsBot/1.0"}, snapshot, time.Now())
//	if d.Action == policy.Refuse {
//		fmt.Println(d.Reason, d.Verdict.Rule)
//	}
//
// A Policy is made once from the configuration and does not change; a reload makes another one. It does no I/O and does
// not read the clock, so the same request, snapshot, time and policy always give the same Decision. It does not
// schedule requests (package ratelimit does) and does not write refusals (package proxy does).
package policy

import (
	"fmt"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/rules"
)

// Options are the operator's configuration.
type Options struct {
	Mode          Mode          // for hosts and clients without their own; if zero, Enforce
	Hosts         []Host        // the first matching pattern applies
	Exemptions    []Exemption   // deny entries take precedence over allow entries
	MaxCrawlDelay time.Duration // for clients without their own; if zero, every Crawl-delay and Request-rate is obeyed
	Dialect       rules.Dialect // for hosts and clients without their own; if zero, RFC 9309
	Interception  Interception  // for hosts without their own; if zero, Intercept
	TunnelHosts   []string      // patterns of hosts to tunnel, if Hosts does not set their Interception
	RefuseOverMax bool          // refuse hosts with a Crawl-delay above the maximum; if false, clamp it

	RequireContact bool // refuse requests whose User-Agent has no contact: see HasContact

	Access       Access            // the hosts that all clients may visit
	ClientAccess map[string]Access // by the name of each client; if empty, only Access counts

	Interventions []Intervention // they take precedence over everything else

	Usage Usage // if zero, UsageRecord

	// Clients are those of the requests, by their names, for Text only: each Request has its Client. That of the proxy's
	// own requests has no name.
	Clients []Client

	// Queries says how much of a query the records keep, for Text only: see audit.QueryMode.
	Queries string
}

// Host is the configuration for the hosts of one pattern.
type Host struct {
	Pattern string         // see MatchHost
	Mode    *Mode          // if nil, the client's or the global one
	Dialect *rules.Dialect // if nil, the client's or the global one
	Delay   time.Duration  // minimum delay between requests; a site can only increase it

	Interception *Interception // if nil, that of Options.TunnelHosts or the global one
}

// Client holds the settings of a request's sender that affect a decision.
type Client struct {
	Name          string
	ProductToken  string         // judged in place of the User-Agent header; if empty, the header is used
	Mode          *Mode          // if nil, the global one
	Dialect       *rules.Dialect // if nil, the global one
	MaxCrawlDelay time.Duration  // if zero, the global one
	Purpose       Purpose        // if empty, not declared
}

// Request is the request to judge, exactly as it would be sent.
type Request struct {
	Client    Client
	Origin    origin.Origin
	Target    string // path and query
	UserAgent string // as it would be sent, or that of a CONNECT
	Tunnel    bool   // a CONNECT to Origin that is not intercepted, so that no path is known; Target is ignored

	forms []string // other forms of Target, set by Judge
}

// Action says whether to send a request. The zero value refuses.
type Action uint8

const (
	Refuse Action = iota
	Forward
)

// Decision is the result for one request, with its cause. The zero value refuses without a reason.
type Decision struct {
	Action      Action
	Outcome     Outcome // for the record
	Reason      Reason
	Verdict     rules.Verdict // the rule that decided; in report mode also the rule that would have refused
	Agent       string        // the group of robots.txt that applied: its product token, or "*"
	Mode        Mode
	Dialect     rules.Dialect // with which robots.txt was read
	Delay       time.Duration // minimum time between two requests to this host; 0: no delay is set
	DelaySource string        // "crawl-delay", "request-rate" or "floor"; empty if Delay is 0
	Clamped     bool          // Delay is shorter than the site asks for: max_crawl_delay
	Exemption   string        // the entry that decided, if any
	Usage       string        // the preferences in robots.txt about the use of the resource, for the record
	HostRule    string        // the list that denies the host, as in "deny_hosts: *.example", if one does

	Intervention string    // the operator's interventions that the decision depends on; several with semicolons
	Until        time.Time // of ReasonStopped: the end of the stop; zero: it has none
	Slow         bool      // an intervention has a Delay for the host, which requests for parts of pages keep too
}

// Policy is a compiled configuration. It is safe for concurrent use.
type Policy struct {
	options       Options
	exemptions    []exemption
	interventions []intervention

	access       access            // of all clients
	clientAccess map[string]access // by the name of the client

	ignoresHeaders bool // DecideResponse decides nothing: Parse got the Text of a version without it

	text          writtenText
	unlistedToAll bool            // Parse did not get the entries of Options.Access.DenyFile
	unlisted      map[string]bool // or those of Options.ClientAccess
}

// New compiles o.
func New(o Options) (*Policy, error) {
	p := &Policy{options: o}
	var err error
	if p.text, err = o.write(); err != nil {
		return nil, err
	}
	if err := p.addAccess(o); err != nil {
		return nil, err
	}
	for _, h := range o.Hosts {
		if err := CheckHostPattern(h.Pattern); err != nil {
			return nil, err
		}
	}
	for _, pattern := range o.TunnelHosts {
		if err := CheckHostPattern(pattern); err != nil {
			return nil, err
		}
	}
	for _, e := range o.Exemptions {
		if err := CheckHostPattern(e.Host); err != nil {
			return nil, err
		}
		if e.Reason == "" || e.Owner == "" {
			return nil, fmt.Errorf("policy: exemption for %s%s lacks a reason or an owner", e.Host, e.Path)
		}
		p.exemptions = append(p.exemptions, compileExemption(e))
	}
	for _, i := range o.Interventions {
		if err := i.Check(); err != nil {
			return nil, err
		}
		p.interventions = append(p.interventions, intervention{i, i.String()})
	}
	return p, nil
}

// Mode returns the configured mode for a client's requests to host. The most specific setting wins: host, then client,
// then global.
func (p *Policy) Mode(host string, c Client) Mode {
	if h := p.host(host); h != nil && h.Mode != nil {
		return *h.Mode
	}
	if c.Mode != nil {
		return *c.Mode
	}
	return p.options.Mode
}

// Dialect returns the dialect for reading robots.txt for a client's requests to host. The most specific setting wins,
// as for Mode.
func (p *Policy) Dialect(host string, c Client) rules.Dialect {
	if h := p.host(host); h != nil && h.Dialect != nil {
		return *h.Dialect
	}
	if c.Dialect != nil {
		return *c.Dialect
	}
	return p.options.Dialect
}

func (p *Policy) host(name string) *Host {
	for i := range p.options.Hosts {
		if MatchHost(p.options.Hosts[i].Pattern, name) {
			return &p.options.Hosts[i]
		}
	}
	return nil
}

// Decide judges r by snap at now. The snapshot may be nil if NeedsRobots is false. It checks in this order: the
// operator's stops, the hosts that the client may visit, the contact in its User-Agent, the operator's deny entries,
// robots.txt with its preferences about use, the operator's allow entries, then the mode. In mode Report, and during a Bypass, it only notes a refusal
// in the record, except that of a stop. In mode Off it checks nothing but the stops and the hosts.
func (p *Policy) Decide(r Request, snap *robots.Snapshot, now time.Time) Decision {
	host := r.Origin.Host()
	mode := p.Mode(host, r.Client)
	if d, stopped := p.Stopped(host, now); stopped {
		d.Mode = mode
		return d
	}
	d, denied := p.denyHost(r)
	switch {
	case denied:
	case mode == Off:
		return Decision{Action: Forward, Outcome: Allow, Reason: ReasonOff, Mode: Off}
	case p.lacksContact(r):
		d = Decision{Outcome: Deny, Reason: ReasonIdentity}
	default:
		d = p.Judge(r, snap, now)
	}
	d.Mode = mode
	if mode == Enforce {
		if bypass := p.bypass(host, now); bypass != nil {
			d.Mode = Report
			d.note(bypass)
		}
	}
	if d.Mode == Report {
		return d.reported()
	}
	return d
}

// reported returns d for mode Report: a refused request is forwarded, and the outcome says what would have happened. An
// error of the origin is not a refusal, so it is recorded as allowed.
func (d Decision) reported() Decision {
	if d.Action == Forward {
		return d
	}
	d.Action, d.Reason = Forward, ReasonReport
	switch d.Outcome {
	case Deny:
		d.Outcome = WouldDeny
	case Throttle:
		d.Outcome = WouldThrottle
	default:
		d.Outcome = Allow
	}
	return d
}

// Judge is Decide in mode Enforce, regardless of the mode and of a Bypass for r, of the hosts that its client may visit,
// and of RequireContact. It is for requests that the proxy makes itself: see DeniedToAll. The snapshot must not be nil.
func (p *Policy) Judge(r Request, snap *robots.Snapshot, now time.Time) Decision {
	d, denied := p.denied(&r, now)
	if denied {
		return d
	}
	dialect := p.Dialect(r.Origin.Host(), r.Client)
	agent := snap.RulesFor(dialect).Agent(r.agent())
	d = byRobots(agent, r, snap)
	d.Dialect = dialect
	over := p.setDelay(&d, r, agent, now)
	p.applyUsage(&d, r, agent, snap.RulesFor(dialect))
	if d.Action == Refuse {
		if e := p.exempt(EffectAllow, r, now); e != nil {
			d.Action, d.Outcome, d.Reason, d.Exemption = Forward, Exempt, ReasonExemption, e.name
		}
	}
	if d.Action == Forward && over {
		d.Action, d.Outcome, d.Reason = Refuse, Deny, ReasonPace
	}
	return d
}

// Denied reports whether r is refused whatever robots.txt says, as by an entry of the operator's, and returns that
// decision.
func (p *Policy) Denied(r Request, now time.Time) (d Decision, denied bool) { return p.denied(&r, now) }

// denied is Denied, and gives r the forms of its target.
func (p *Policy) denied(r *Request, now time.Time) (d Decision, denied bool) {
	if d, stopped := p.Stopped(r.Origin.Host(), now); stopped {
		return d, true
	}
	if !r.Tunnel {
		if hasManyDots(r.Target) {
			return Decision{Outcome: Deny, Reason: ReasonTooComplex, Verdict: rules.Verdict{TooComplex: true}}, true
		}
		r.forms = otherForms(r.Target)
	}
	if e := p.exempt(EffectDeny, *r, now); e != nil {
		return Decision{Outcome: Deny, Reason: ReasonExemption, Exemption: e.name}, true
	}
	return Decision{}, false
}

func (p *Policy) exempt(effect Effect, r Request, now time.Time) *exemption {
	for i := range p.exemptions {
		if e := &p.exemptions[i]; e.Effect == effect && e.covers(r, now) {
			return e
		}
	}
	return nil
}

// byRobots applies RFC 9309 section 2.3.1: the rules if the file was found, all paths allowed if the file is
// unavailable, and all paths disallowed if it could not be reached.
func byRobots(agent rules.Agent, r Request, snap *robots.Snapshot) Decision {
	switch snap.Availability {
	case robots.Found, robots.Unavailable:
		d := Decision{Agent: agent.Token(), Outcome: Deny, Reason: ReasonRobots}
		if r.Tunnel {
			d.Verdict, _ = agent.DisallowsAll()
			d.Reason = ReasonIntercept
		} else {
			// Judging only the written form would let "/a/../private" and "//private" bypass a rule for "/private".
			d.Verdict = agent.VerdictOf(r.Target, r.forms)
		}
		switch {
		case d.Verdict.Allowed:
			d.Action, d.Outcome, d.Reason = Forward, Allow, ReasonNone
		case d.Verdict.TooComplex:
			d.Reason = ReasonTooComplex
		}
		return d
	default:
		d := Decision{Outcome: Error, Reason: ReasonRobotsUnreachable}
		if snap.Status != 0 {
			d.Outcome = Deny // the origin answered, and its answer disallows the site
		}
		return d
	}
}

// agent returns the text to match against the groups. A tunnel's CONNECT comes from the HTTP library of a crawler and
// seldom has the crawler's User-Agent; if it has one, agent returns it.
func (r Request) agent() string {
	switch {
	case r.Tunnel && r.UserAgent != "":
		return r.UserAgent
	case r.Tunnel && r.Client.ProductToken == "":
		return "*"
	}
	if r.Client.ProductToken != "" {
		return r.Client.ProductToken
	}
	return r.UserAgent
}

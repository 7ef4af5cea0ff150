// Package policy decides: from what a robots.txt says, who asks and what the operator configured, to one Decision.
//
//	p, err := policy.New(policy.Options{Mode: policy.Enforce})
//	d := p.Decide(policy.Request{Origin: o, Target: "/private", UserAgent: "NewsBot/1.0"}, snapshot, time.Now())
//	if d.Action == policy.Refuse {
//		fmt.Println(d.Reason, d.Verdict.Rule)
//	}
//
// A Policy is made once from the configuration and never edited; a reload makes another one. It does no I/O and reads no
// clock, so the same record, snapshot and policy give the same Decision years later. It does not know when a request
// may leave (package ratelimit) nor what a refusal looks like (package proxy).
package policy

import (
	"fmt"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/rules"
)

// Options say what an operator configured.
type Options struct {
	Mode          Mode          // for hosts and clients without their own; if zero, Enforce
	Hosts         []Host        // the first whose pattern matches
	Exemptions    []Exemption   // deny entries go before allow entries
	MaxCrawlDelay time.Duration // for clients without their own; if zero, every Crawl-delay and Request-rate is obeyed
	Dialect       rules.Dialect // for hosts and clients without their own; if zero, RFC 9309
	Interception  Interception  // for hosts without their own; if zero, Intercept
	TunnelHosts   []string      // patterns of hosts whose tunnels are passed on, where Hosts does not say
	RefuseOverMax bool          // refuse hosts whose Crawl-delay is above the maximum; if false, clamp it
	VisitTime     bool          // obey Visit-time
}

// Host is what an operator configured for the hosts of one pattern.
type Host struct {
	Pattern string         // see MatchHost
	Mode    *Mode          // if nil, the client's or the global one
	Dialect *rules.Dialect // if nil, the client's or the global one
	Delay   time.Duration  // floor of the delay between requests; a site can only slow us down further

	Interception *Interception // if nil, that of Options.TunnelHosts or the global one
}

// Client is who asks, as far as it matters for a decision.
type Client struct {
	Name          string
	ProductToken  string         // judged in place of the User-Agent header; if empty, the header is
	Mode          *Mode          // if nil, the global one
	Dialect       *rules.Dialect // if nil, the global one
	MaxCrawlDelay time.Duration  // if zero, the global one
}

// Request is what is judged: exactly what would be sent.
type Request struct {
	Client    Client
	Origin    origin.Origin
	Target    string // path and query
	UserAgent string
	Tunnel    bool // for a way to Origin of which no path will be seen; Target does not count

	forms []string // other forms of Target, set by Judge
}

// Action is what to do with a request. The zero value refuses.
type Action uint8

const (
	Refuse Action = iota
	Forward
)

// Decision is what is done with one request, and why. The zero value refuses without a reason.
type Decision struct {
	Action      Action
	Outcome     Outcome // the word for the record
	Reason      Reason
	Verdict     rules.Verdict // the rule that decided; in mode report also the one that would have
	Agent       string        // the group of robots.txt that applied: its product token, or "*"
	Mode        Mode
	Dialect     rules.Dialect // whose reading of robots.txt counted
	Delay       time.Duration // least time between two requests to this host; 0: none asked for
	DelaySource string        // "crawl-delay", "request-rate" or "floor"; empty where Delay is 0
	Opens       time.Time     // when the site's Visit-time begins; zero: it may be visited now
	Closes      time.Time     // when it ends after that; zero: it does not
	Reopens     time.Time     // when it begins again after Closes
	Clamped     bool          // Delay is less than the site asked for: max_crawl_delay
	Exemption   string        // the entry that decided, if one did
}

// Policy is a compiled configuration. Its methods may be called by many goroutines at once.
type Policy struct {
	options    Options
	exemptions []exemption
}

// New compiles o.
func New(o Options) (*Policy, error) {
	p := &Policy{options: o}
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
	return p, nil
}

// Mode returns the mode for a client's requests to host. The most specific setting wins: host, then client, then global.
func (p *Policy) Mode(host string, c Client) Mode {
	if h := p.host(host); h != nil && h.Mode != nil {
		return *h.Mode
	}
	if c.Mode != nil {
		return *c.Mode
	}
	return p.options.Mode
}

// Dialect returns whose reading of robots.txt counts for a client's requests to host. The most specific setting wins, as
// for the mode.
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

// Decide judges r by snap at now. The snapshot may be nil only where the mode is Off. The order of the checks is: the
// operator's deny, robots.txt, the operator's allow, then the mode, which turns a refusal into a note in the record.
func (p *Policy) Decide(r Request, snap *robots.Snapshot, now time.Time) Decision {
	mode := p.Mode(r.Origin.Host(), r.Client)
	if mode == Off {
		return Decision{Action: Forward, Outcome: Allow, Reason: ReasonOff, Mode: Off}
	}
	d := p.Judge(r, snap, now)
	d.Mode = mode
	if mode == Report {
		return d.reported()
	}
	return d
}

// reported is d without its teeth: what would have been refused goes on, and the record says so. A fault of the origin
// is no refusal by anybody, so it is not counted as one.
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

// Judge is Decide in mode Enforce, whatever the mode for r is. It is for requests of the proxy itself, which no crawler
// made. The snapshot may not be nil.
func (p *Policy) Judge(r Request, snap *robots.Snapshot, now time.Time) Decision {
	if !r.Tunnel {
		if hasManyDots(r.Target) {
			return Decision{Outcome: Deny, Reason: ReasonTooComplex, Verdict: rules.Verdict{TooComplex: true}}
		}
		r.forms = otherForms(r.Target)
	}
	if e := p.exempt(EffectDeny, r, now); e != nil {
		return Decision{Outcome: Deny, Reason: ReasonExemption, Exemption: e.name}
	}
	dialect := p.Dialect(r.Origin.Host(), r.Client)
	agent := snap.RulesFor(dialect).Agent(r.agent())
	d := byRobots(agent, r, snap)
	d.Dialect = dialect
	over := p.setDelay(&d, r, agent, now)
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

func (p *Policy) exempt(effect Effect, r Request, now time.Time) *exemption {
	for i := range p.exemptions {
		if e := &p.exemptions[i]; e.Effect == effect && e.covers(r, now) {
			return e
		}
	}
	return nil
}

// byRobots applies RFC 9309 section 2.3.1: the rules where there are some, all paths where the file is unavailable,
// and no path where it could not be reached.
func byRobots(agent rules.Agent, r Request, snap *robots.Snapshot) Decision {
	switch snap.Availability {
	case robots.Found, robots.Unavailable:
		d := Decision{Agent: agent.Token(), Outcome: Deny, Reason: ReasonRobots}
		if r.Tunnel {
			d.Verdict, _ = agent.Closed()
			d.Reason = ReasonIntercept
		} else {
			// The written form alone would make "/a/../private" and "//private" ways round "/private".
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
			d.Outcome = Deny // the origin answered, and its answer closes the site
		}
		return d
	}
}

// agent returns what is matched against the groups. A tunnel's CONNECT is sent by the library below a crawler, which
// seldom names it; where it does, that counts.
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

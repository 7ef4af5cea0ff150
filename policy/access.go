package policy

import (
	"fmt"

	"github.com/robotsproxy/robotsproxy/internal/hostset"
)

// Access lists the hosts that a client may visit, as patterns: see MatchHost. The zero value lets it visit every host.
type Access struct {
	Allow    []string     // if empty, every host; else no others
	Deny     []string     // takes precedence over Allow
	DenyFile *hostset.Set // as Deny; may be nil
}

// access is a compiled Access.
type access struct{ allow, deny, denyFile *hostset.Set }

func compileAccess(a Access) (access, error) {
	allow, err := hostset.New(a.Allow)
	if err != nil {
		return access{}, fmt.Errorf("policy: allowed hosts: %w", err)
	}
	deny, err := hostset.New(a.Deny)
	if err != nil {
		return access{}, fmt.Errorf("policy: denied hosts: %w", err)
	}
	return access{allow, deny, a.DenyFile}, nil
}

// addAccess compiles the lists of o.
func (p *Policy) addAccess(o Options) (err error) {
	if p.access, err = compileAccess(o.Access); err != nil {
		return err
	}
	p.clientAccess = make(map[string]access, len(o.ClientAccess))
	for client, a := range o.ClientAccess {
		if p.clientAccess[client], err = compileAccess(a); err != nil {
			return err
		}
	}
	return nil
}

// denyFileRule begins Decision.HostRule if an entry of Access.DenyFile denies the host.
const denyFileRule = "deny_hosts_file: "

// deniedBy returns the list and the pattern by which a denies host, or "".
func (a access) deniedBy(host string) string {
	if pattern, listed := a.deny.Match(host); listed {
		return "deny_hosts: " + pattern
	}
	if pattern, listed := a.denyFile.Match(host); listed {
		return denyFileRule + pattern
	}
	return ""
}

// hostRule returns the list by which a client may not visit host, as in "deny_hosts: *.example", or "" if it may. The
// lists that deny hold together: those for all clients and the client's own. Of the lists that allow, the client's own
// replaces the one for all.
func (p *Policy) hostRule(host, client string) string {
	all, own := p.access, p.clientAccess[client]
	if rule := all.deniedBy(host); rule != "" {
		return rule
	}
	if rule := own.deniedBy(host); rule != "" {
		return rule + " (client " + client + ")"
	}
	allow, of := all.allow, ""
	if own.allow.Len() > 0 {
		allow, of = own.allow, " (client "+client+")"
	}
	if _, listed := allow.Match(host); listed || allow.Len() == 0 {
		return ""
	}
	return "not in allow_hosts" + of
}

// denyHost reports whether the client of r may not visit the host, and returns that decision.
func (p *Policy) denyHost(r Request) (d Decision, denied bool) {
	rule := p.hostRule(r.Origin.Host(), r.Client.Name)
	return Decision{Outcome: Deny, Reason: ReasonHost, HostRule: rule}, rule != ""
}

// DeniedToAll reports whether no client may visit host, and returns the list that denies it, as in Decision.HostRule.
// Without ClientAccess, that depends on Options.Access alone.
func (p *Policy) DeniedToAll(host string) (rule string, denied bool) {
	if len(p.clientAccess) == 0 {
		rule = p.hostRule(host, "")
		return rule, rule != ""
	}
	for client := range p.clientAccess {
		if rule = p.hostRule(host, client); rule == "" {
			return "", false
		}
	}
	return rule, true
}

// NeedsRobots reports whether Decide needs the robots.txt of r's origin: the mode for r is not Off, the client may visit
// the host, and its User-Agent has the contact that the operator requires.
func (p *Policy) NeedsRobots(r Request) bool {
	host := r.Origin.Host()
	return p.Mode(host, r.Client) != Off && p.hostRule(host, r.Client.Name) == "" && !p.lacksContact(r)
}

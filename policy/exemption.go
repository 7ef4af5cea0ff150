package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/rules"
)

// Effect is the effect of an Exemption. The zero value denies.
type Effect uint8

const (
	EffectDeny  Effect = iota // refuse requests, even if robots.txt allows them
	EffectAllow               // forward requests that robots.txt disallows; they are still paced
)

var effects = [...]string{EffectDeny: "deny", EffectAllow: "allow"}

// String returns "deny" or "allow".
func (e Effect) String() string { return effects[e] }

// Exemption is an operator's exception to robots.txt, for some paths of some hosts. It has a reason and an owner, so
// that an auditor can ask.
type Exemption struct {
	Host   string // pattern, see MatchHost
	Path   string // pattern as in robots.txt (RFC 9309 section 2.2.3); empty: every path
	Client string // name of a client; empty: all of them
	Effect Effect
	Reason string
	Owner  string    // person or team responsible for it
	Until  time.Time // when it expires; zero: never
}

// Expired reports whether e has expired at now.
func (e *Exemption) Expired(now time.Time) bool { return !e.Until.IsZero() && !now.Before(e.Until) }

// String returns the name of e for a record: its effect, host, path, reason and owner.
func (e *Exemption) String() string {
	return fmt.Sprintf("%s %s%s: %s (%s)", e.Effect, e.Host, e.Path, e.Reason, e.Owner)
}

// exemption is an Exemption with a compiled path pattern. Patterns have the syntax of robots.txt, so package rules
// matches them.
type exemption struct {
	Exemption
	name string
	path rules.Agent
}

func compileExemption(e Exemption) exemption {
	path := e.Path
	if path == "" {
		path = "/"
	}
	set := rules.Parse([]byte("User-agent: *\nDisallow: "+path+"\n"), rules.Options{})
	return exemption{Exemption: e, name: e.String(), path: set.Agent("*")}
}

func (e *exemption) covers(r Request, now time.Time) bool {
	return !e.Expired(now) &&
		(e.Client == "" || e.Client == r.Client.Name) &&
		MatchHost(e.Host, r.Origin.Host()) &&
		(r.Tunnel && e.coversAll() || !r.Tunnel && e.coversTarget(r))
}

// coversAll reports whether e applies to every path.
func (e *exemption) coversAll() bool {
	_, all := e.path.DisallowsAll()
	return all
}

// coversTarget checks the target as written and in the forms in which servers may read it, as for robots.txt. A deny
// entry covers r if any form matches; an allow entry only if all forms match. If matching is too complex, a deny entry
// covers r, and an allow entry does not.
func (e *exemption) coversTarget(r Request) bool {
	if e.Effect == EffectDeny {
		return !e.path.VerdictOf(r.Target, r.forms).Allowed
	}
	return e.matches(r.Target) && !slices.ContainsFunc(r.forms, func(form string) bool { return !e.matches(form) })
}

func (e *exemption) matches(target string) bool {
	v := e.path.Verdict(target)
	return !v.Allowed && !v.TooComplex
}

// CheckHostPattern returns an error if pattern is not of the form "a.example", "*.example" or "*", or is not canonical.
func CheckHostPattern(pattern string) error {
	if pattern == "*" {
		return nil
	}
	name := strings.TrimPrefix(pattern, "*.")
	canonical, err := origin.Host(name)
	if err != nil {
		return err
	}
	canonical = origin.Key(canonical)
	if canonical != name {
		return fmt.Errorf("policy: host pattern %q is written %q in canonical form",
			pattern, strings.TrimSuffix(pattern, name)+canonical)
	}
	return nil
}

// MatchHost reports whether pattern matches the canonical host. "a.example" matches one host, "*.example" all its
// subdomains but not example, and "*" all hosts. An IPv4 address also matches its NAT64 form (see origin.Key).
func MatchHost(pattern, host string) bool {
	host = origin.Key(host)
	if pattern == "*" {
		return true
	}
	if suffix, ok := strings.CutPrefix(pattern, "*"); ok {
		return len(host) > len(suffix) && strings.HasSuffix(host, suffix)
	}
	return pattern == host
}

package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/rules"
)

// Effect is what an Exemption does. The zero value denies.
type Effect uint8

const (
	EffectDeny  Effect = iota // refuse what robots.txt may allow
	EffectAllow               // forward what robots.txt disallows; the pace stays on
)

// ParseEffect reads "allow" or "deny".
func ParseEffect(s string) (Effect, error) {
	switch s {
	case "allow":
		return EffectAllow, nil
	case "deny":
		return EffectDeny, nil
	}
	return EffectDeny, fmt.Errorf("policy: effect %q is neither allow nor deny", s)
}

// Exemption is an operator's own word about some paths of some hosts, which goes before robots.txt. Somebody owns it
// and has given a reason, so that an auditor can ask.
type Exemption struct {
	Host   string    // pattern, see MatchHost
	Path   string    // pattern as in robots.txt (RFC 9309 section 2.2.3); empty: every path
	Client string    // name of a client; empty: all of them
	Effect Effect    // what it does
	Reason string    // why
	Owner  string    // who answers for it
	Until  time.Time // when it stops working; zero: never
}

// expired reports whether e has stopped working at now.
func (e *Exemption) expired(now time.Time) bool { return !e.Until.IsZero() && !now.Before(e.Until) }

// String names e for a record: its effect, where it holds and its reason.
func (e *Exemption) String() string {
	effect := "deny"
	if e.Effect == EffectAllow {
		effect = "allow"
	}
	return fmt.Sprintf("%s %s%s: %s (%s)", effect, e.Host, e.Path, e.Reason, e.Owner)
}

// exemption is an Exemption whose path pattern is compiled. The pattern is written in the language of robots.txt, so
// its one matcher serves here too.
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
	return !e.expired(now) &&
		(e.Client == "" || e.Client == r.Client.Name) &&
		MatchHost(e.Host, r.Origin.Host()) &&
		(r.Tunnel && e.coversAll() || !r.Tunnel && e.coversTarget(r))
}

// coversAll reports whether e is about every path.
func (e *exemption) coversAll() bool {
	_, all := e.path.Closed()
	return all
}

// coversTarget looks at the target as written and as servers read it, as robots.txt is held to: what is denied is denied in
// any form, and what is allowed must be so in all. What is too complex is denied, and not allowed.
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

// CheckHostPattern says what is wrong with a host pattern: "a.example", "*.example" or "*".
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
		return fmt.Errorf("policy: host pattern %q is written %q in canonical form", pattern, strings.TrimSuffix(pattern, name)+canonical)
	}
	return nil
}

// MatchHost reports whether pattern names host, which is canonical. "a.example" names one host, "*.example" every host
// below example but not example itself, and "*" all. An IPv4 address names its NAT64 form too (see origin.Key).
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

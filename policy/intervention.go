package policy

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// InterventionKind is what an Intervention does.
type InterventionKind string

const (
	Stop   InterventionKind = "stop"   // refuse all requests, in every mode, those of the proxy itself included
	Slow   InterventionKind = "slow"   // space requests by Intervention.Delay at least
	Bypass InterventionKind = "bypass" // apply mode Report where mode Enforce would apply
)

// Intervention is what an operator orders for some hosts while the proxy runs, in addition to the configuration. A
// request is refused if any Stop matches it. Of several Slow entries, the longest Delay applies.
type Intervention struct {
	Kind   InterventionKind `json:"kind"`
	Host   string           `json:"host"`            // pattern, see MatchHost
	Delay  time.Duration    `json:"delay,omitempty"` // of Slow, in nanoseconds; at most MaxSlow
	Reason string           `json:"reason"`
	By     string           `json:"by"` // person who ordered it
	Since  time.Time        `json:"since"`
	Until  time.Time        `json:"until,omitzero"` // its end; zero: until it is lifted. A Bypass needs one.
}

// MaxSlow is the longest Delay of an Intervention.
const MaxSlow = 365 * 24 * time.Hour

// maxInterventionText bounds Intervention.Reason and By, in bytes. Each record of a request that they affect has them.
const maxInterventionText = 500

// FieldError is an error of one field of an Intervention.
type FieldError struct {
	Field string // kind, host, delay, reason, by or until
	Err   error
}

func (e *FieldError) Error() string { return e.Err.Error() }

// Unwrap returns e.Err.
func (e *FieldError) Unwrap() error { return e.Err }

// Check returns a FieldError if i cannot be applied.
func (i *Intervention) Check() error {
	wrong := func(field, format string, args ...any) error {
		return &FieldError{field, fmt.Errorf("policy: "+format, args...)}
	}
	if err := CheckHostPattern(i.Host); err != nil {
		return &FieldError{"host", err}
	}
	for _, f := range []struct{ name, text string }{{"reason", i.Reason}, {"by", i.By}} {
		if len(f.text) > maxInterventionText || strings.ContainsFunc(f.text, unicode.IsControl) || !utf8.ValidString(f.text) {
			return wrong(f.name, "the reason and the operator of %s must be one line of at most %d bytes each", i.Host, maxInterventionText)
		}
	}
	switch {
	case i.Kind != Stop && i.Kind != Slow && i.Kind != Bypass:
		return wrong("kind", "the intervention %q is neither stop, slow nor bypass", i.Kind)
	case i.Reason == "":
		return wrong("reason", "the %s of %s lacks a reason or the name of its operator", i.Kind, i.Host)
	case i.By == "":
		return wrong("by", "the %s of %s lacks a reason or the name of its operator", i.Kind, i.Host)
	case i.Kind != Slow && i.Delay != 0:
		return wrong("delay", "a %s has no delay", i.Kind)
	case i.Kind == Slow && (i.Delay <= 0 || i.Delay > MaxSlow):
		return wrong("delay", "the delay of %s is %v, and must be above 0 and at most a year", i.Host, i.Delay)
	case i.Kind == Bypass && i.Until.IsZero():
		return wrong("until", "the bypass of %s has no end", i.Host)
	}
	return nil
}

// Expired reports whether i has ended at now.
func (i *Intervention) Expired(now time.Time) bool { return !i.Until.IsZero() && !now.Before(i.Until) }

// String returns the name of i for a record: its kind, host, delay, reason and operator.
func (i *Intervention) String() string {
	what := string(i.Kind) + " " + i.Host
	if i.Kind == Slow {
		what += " " + i.Delay.String()
	}
	return fmt.Sprintf("%s: %s (%s)", what, i.Reason, i.By)
}

// intervention is an Intervention with its name.
type intervention struct {
	Intervention
	name string
}

func (i *intervention) covers(kind InterventionKind, host string, now time.Time) bool {
	return i.Kind == kind && !i.Expired(now) && MatchHost(i.Host, host)
}

// Stopped returns the decision on every request to the canonical host at now if a Stop holds for it. The result is false
// if it does not.
func (p *Policy) Stopped(host string, now time.Time) (Decision, bool) {
	stop := p.stop(host, now)
	if stop == nil {
		return Decision{}, false
	}
	d := Decision{Outcome: Deny, Reason: ReasonStopped, Until: stop.Until}
	d.note(stop)
	return d, true
}

// stop returns the Stop that holds for host at now, or nil. Of several it returns the one that ends last.
func (p *Policy) stop(host string, now time.Time) *intervention {
	return p.intervention(Stop, host, now, func(a, b *intervention) bool {
		return !b.Until.IsZero() && (a.Until.IsZero() || a.Until.After(b.Until))
	})
}

// Floor returns the longest Delay of the Slow entries that hold for the canonical host at now, or 0.
func (p *Policy) Floor(host string, now time.Time) time.Duration {
	if slow := p.slow(host, now); slow != nil {
		return slow.Delay
	}
	return 0
}

// slow returns the Slow with the longest Delay that holds for host at now, or nil.
func (p *Policy) slow(host string, now time.Time) *intervention {
	return p.intervention(Slow, host, now, func(a, b *intervention) bool { return a.Delay > b.Delay })
}

// Bypassed reports whether a Bypass holds for the canonical host at now.
func (p *Policy) Bypassed(host string, now time.Time) bool { return p.bypass(host, now) != nil }

// bypass returns the Bypass that holds for host at now, or nil. Of several it returns the one that ends last.
func (p *Policy) bypass(host string, now time.Time) *intervention {
	return p.intervention(Bypass, host, now, func(a, b *intervention) bool { return a.Until.After(b.Until) })
}

// intervention returns the entry of a kind that holds for host at now, or nil. Of several it returns the one that goes
// before all others.
func (p *Policy) intervention(
	kind InterventionKind, host string, now time.Time, before func(a, b *intervention) bool,
) (found *intervention) {
	for n := range p.interventions {
		if i := &p.interventions[n]; i.covers(kind, host, now) && (found == nil || before(i, found)) {
			found = i
		}
	}
	return found
}

// note adds i to the interventions that d depends on.
func (d *Decision) note(i *intervention) {
	d.Intervention = strings.TrimPrefix(d.Intervention+"; "+i.name, "; ")
}

package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/rules"
)

// scalar is how values of one type are read and written. A file, a variable and a flag all go through here.
type scalar struct {
	expected string                    // what a fault says should stand there
	plain    bool                      // in YAML it stands without quotes
	secret   bool                      // what stands there is not repeated
	words    []string                  // the closed list, if there is one
	parse    func(string) (any, error) // its error is a hint beyond "found this, expected that", or errNoHint
	format   func(any) string
}

// errNoHint is the error of a parser that has nothing to say but no.
var errNoHint = errors.New("no hint")

var scalars = map[reflect.Type]scalar{
	reflect.TypeFor[bool]():          plain("true or false", parseBool, strconv.FormatBool),
	reflect.TypeFor[int]():           plain("a whole number", parseInt, strconv.Itoa),
	reflect.TypeFor[time.Duration](): of("a duration such as 24h, 150s, 500ms, 90d or 2w", parseDuration, formatDuration),
	reflect.TypeFor[Size]():          of("a size such as 64MiB, 500KiB or 10MB", parseSize, Size.String),
	reflect.TypeFor[netip.Prefix]():  of("an address or a network such as 10.0.0.0/8", parsePrefix, formatPrefix),
	reflect.TypeFor[netip.Addr]():    of("an IP address", parseAddr, netip.Addr.String),
	reflect.TypeFor[PortRange]():     of("a port, a range such as 1024-65535, or any", parsePorts, PortRange.String),
	reflect.TypeFor[time.Time]():     of("a date such as 2027-06-30, or a time as in RFC 3339", parseUntil, formatTime),
	reflect.TypeFor[policy.Mode]():   oneOf(policy.Mode.String, policy.Enforce, policy.Report, policy.Off),
	reflect.TypeFor[policy.Effect](): oneOf(effectWord, policy.EffectAllow, policy.EffectDeny),
	reflect.TypeFor[rules.Dialect](): oneOf(rules.Dialect.String, rules.Dialects()...),
	reflect.TypeFor[slog.Level]():    oneOf(levelWord, slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError),
	reflect.TypeFor[Treatment]():     oneOf(word, Allow, Refuse),
	reflect.TypeFor[OverMax]():       oneOf(word, OverMaxClamp, OverMaxRefuse),
	reflect.TypeFor[VisitTime]():     oneOf(word, VisitTimeIgnore, VisitTimeObey),
	reflect.TypeFor[Redirects]():     oneOf(word, RedirectsSlot, RedirectsRide),
	reflect.TypeFor[Subresources]():  oneOf(word, SubresourcesSlot, SubresourcesPage),
	reflect.TypeFor[PaceKey]():       oneOf(word, PaceKeyHost, PaceKeyDomain),
	reflect.TypeFor[Spacing]():       oneOf(word, SpacingEnd, SpacingStart),
	reflect.TypeFor[OnFailure]():     oneOf(word, OnFailureRefuse, OnFailureContinue),
	reflect.TypeFor[OnDown]():        oneOf(word, OnDownSpread, OnDownRefuse, OnDownLocal),
	reflect.TypeFor[Query]():         oneOf(word, QueryMask, QueryKeep, QueryHash, QueryDrop),
	reflect.TypeFor[LogFormat]():     oneOf(word, LogAuto, LogText, LogJSON),

	reflect.TypeFor[policy.Interception](): oneOf(policy.Interception.String, policy.Intercept, policy.Tunnel, policy.NoTunnel),
}

// scalarFor returns how a field of type t is read; for a string its tag "as" says what kind of string.
func scalarFor(t reflect.Type, tag reflect.StructTag) (s scalar, ok bool) {
	if t == reflect.TypeFor[string]() {
		s, ok = texts[tag.Get("as")]
		return s, ok
	}
	s, ok = scalars[t]
	return s, ok
}

func of[T any](expected string, parse func(string) (T, error), format func(T) string) scalar {
	return scalar{
		expected: expected,
		parse:    func(s string) (any, error) { return parse(s) },
		format:   func(v any) string { return format(v.(T)) },
	}
}

func plain[T any](expected string, parse func(string) (T, error), format func(T) string) scalar {
	s := of(expected, parse, format)
	s.plain = true
	return s
}

// oneOf reads one of a few words, each of which name gives to a value.
func oneOf[T any](name func(T) string, values ...T) scalar {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = name(v)
	}
	last := len(words) - 1
	s := of(strings.Join(words[:last], ", ")+" or "+words[last], func(s string) (T, error) {
		for i, w := range words {
			if s == w {
				return values[i], nil
			}
		}
		var none T
		return none, errNoHint
	}, name)
	s.words = words
	return s
}

func word[T ~string](v T) string { return string(v) }

func levelWord(l slog.Level) string { return strings.ToLower(l.String()) }

func effectWord(e policy.Effect) string {
	if e == policy.EffectAllow {
		return "allow"
	}
	return "deny"
}

func parseBool(s string) (bool, error) {
	if s != "true" && s != "false" {
		return false, errNoHint
	}
	return s == "true", nil
}

// parseInt reads decimal digits alone: YAML readers disagree on 010, 0x10 and 1_000.
func parseInt(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || strconv.Itoa(n) != s {
		return 0, errNoHint
	}
	return n, nil
}

func parseAddr(s string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(s)
	if err != nil || addr.Zone() != "" {
		return netip.Addr{}, errNoHint
	}
	return addr.Unmap(), nil
}

// parsePrefix reads a network, or an address, which is a network of one. Bits behind the mask are refused, since either
// the address or the mask is not what was meant.
func parsePrefix(s string) (netip.Prefix, error) {
	if addr, err := parseAddr(s); err == nil {
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err == nil && p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	switch {
	case err != nil:
		return netip.Prefix{}, errNoHint
	case p.Addr().Is4In6():
		return netip.Prefix{}, errors.New("write an IPv4 network as IPv4")
	case p.Masked() != p:
		return netip.Prefix{}, fmt.Errorf("did you mean %s or %s?", p.Masked(), p.Addr())
	}
	return p, nil
}

func formatPrefix(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// parseUntil reads a moment. A date means the end of that day in UTC, so that "until June 30" holds on June 30.
func parseUntil(s string) (time.Time, error) {
	if day, err := time.Parse(time.DateOnly, s); err == nil {
		return day.AddDate(0, 0, 1), nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, errNoHint
	}
	return t.UTC(), nil
}

func formatTime(t time.Time) string { return t.Format(time.RFC3339) }

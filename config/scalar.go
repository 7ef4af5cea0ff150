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

	"github.com/robotsproxy/robotsproxy/internal/settings"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/rules"
)

// scalars are the values of each type.
var scalars = map[reflect.Type]settings.Scalar{
	reflect.TypeFor[bool]():          settings.Of("true or false", parseBool, strconv.FormatBool).Unquoted(),
	reflect.TypeFor[int]():           settings.Of("a whole number", parseInt, strconv.Itoa).Unquoted(),
	reflect.TypeFor[time.Duration](): settings.Of("a duration such as 24h, 150s, 500ms, 90d or 2w", parseDuration, formatDuration),
	reflect.TypeFor[Size]():          settings.Of("a size such as 64MiB, 500KiB or 10MB", parseSize, Size.String),
	reflect.TypeFor[netip.Prefix]():  settings.Of("an address or a network such as 10.0.0.0/8", parsePrefix, formatPrefix),
	reflect.TypeFor[netip.Addr]():    settings.Of("an IP address", parseAddr, netip.Addr.String),
	reflect.TypeFor[PortRange]():     settings.Of("a port, a range such as 1024-65535, or any", parsePorts, PortRange.String),
	reflect.TypeFor[time.Time]():     settings.Of("a date such as 2027-06-30, or a time as in RFC 3339", parseUntil, formatTime),
	reflect.TypeFor[policy.Mode]():   settings.OneOf(policy.Mode.String, policy.Enforce, policy.Report, policy.Off),
	reflect.TypeFor[policy.Usage]():  settings.OneOf(policy.Usage.String, policy.UsageRecord, policy.UsageEnforce),
	reflect.TypeFor[policy.Effect](): settings.OneOf(policy.Effect.String, policy.EffectAllow, policy.EffectDeny),
	reflect.TypeFor[rules.Dialect](): settings.OneOf(rules.Dialect.String, rules.Dialects()...),
	reflect.TypeFor[slog.Level]():    settings.OneOf(levelWord, slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError),
	reflect.TypeFor[Treatment]():     settings.OneOf(word, Allow, Refuse),
	reflect.TypeFor[OverMax]():       settings.OneOf(word, OverMaxClamp, OverMaxRefuse),
	reflect.TypeFor[SignForm]():      settings.OneOf(word, SignDictionary, SignString),
	reflect.TypeFor[SignExisting]():  settings.OneOf(word, SignKeep, SignReplace),
	reflect.TypeFor[Subresources]():  settings.OneOf(word, SubresourcesSlot, SubresourcesPage),
	reflect.TypeFor[PaceKey]():       settings.OneOf(word, PaceKeyHost, PaceKeyDomain, PaceKeyIP),
	reflect.TypeFor[Spacing]():       settings.OneOf(word, SpacingEnd, SpacingStart),
	reflect.TypeFor[AuditStore]():    settings.OneOf(word, AuditSQLite, AuditPostgres, AuditNone),
	reflect.TypeFor[Durability]():    settings.OneOf(word, DurabilityGrouped, DurabilityStrict),
	reflect.TypeFor[OnFailure]():     settings.OneOf(word, OnFailureRefuse, OnFailureContinue),
	reflect.TypeFor[OnDown]():        settings.OneOf(word, OnDownSpread, OnDownRefuse, OnDownLocal),
	reflect.TypeFor[Query]():         settings.OneOf(word, QueryMask, QueryKeep, QueryHash, QueryDrop),
	reflect.TypeFor[ClientAddr]():    settings.OneOf(word, ClientAddrKeep, ClientAddrMask, ClientAddrDrop),
	reflect.TypeFor[LogFormat]():     settings.OneOf(word, LogAuto, LogText, LogJSON),
	reflect.TypeFor[LogRequests]():   settings.OneOf(word, LogRefused, LogOff, LogAll),

	reflect.TypeFor[policy.Purpose]():      settings.OneOf(word, policy.Purposes...),
	reflect.TypeFor[policy.Interception](): settings.OneOf(policy.Interception.String, policy.Intercept, policy.Tunnel, policy.NoTunnel),
}

func word[T ~string](v T) string { return string(v) }

func levelWord(l slog.Level) string { return strings.ToLower(l.String()) }

func parseBool(s string) (bool, error) {
	if s != "true" && s != "false" {
		return false, settings.ErrNoHint
	}
	return s == "true", nil
}

// parseInt reads decimal digits only: YAML parsers disagree on 010, 0x10 and 1_000.
func parseInt(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || strconv.Itoa(n) != s {
		return 0, settings.ErrNoHint
	}
	return n, nil
}

func parseAddr(s string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(s)
	if err != nil || addr.Zone() != "" {
		return netip.Addr{}, settings.ErrNoHint
	}
	return addr.Unmap(), nil
}

// parsePrefix reads a network, or an address as a network of one. It rejects bits after the mask: either the address or
// the mask is a mistake.
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
		return netip.Prefix{}, settings.ErrNoHint
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

// parseUntil reads a time. A date is the end of that day in UTC, so that "until June 30" includes June 30.
func parseUntil(s string) (time.Time, error) {
	if day, err := time.Parse(time.DateOnly, s); err == nil {
		return day.AddDate(0, 0, 1), nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, settings.ErrNoHint
	}
	return t.UTC(), nil
}

func formatTime(t time.Time) string { return t.Format(time.RFC3339) }

package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/settings"
)

// Size is a number of bytes.
type Size int64

const (
	kibi Size = 1 << (10 * (iota + 1))
	mebi
	gibi
	tebi
)

// sizeUnits are sorted by size, and a binary unit comes before the decimal one.
var sizeUnits = []struct {
	name string
	size Size
}{
	{"TiB", tebi}, {"TB", 1e12}, {"GiB", gibi}, {"GB", 1e9}, {"MiB", mebi}, {"MB", 1e6}, {"KiB", kibi}, {"KB", 1e3}, {"B", 1},
}

// String returns s as a whole number of the largest possible unit: "64MiB".
func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && s%u.size == 0 {
			return fmt.Sprintf("%d%s", int64(s/u.size), u.name)
		}
	}
	return "0B"
}

// ParseSize reads a size in the syntax of the configuration, such as 64MiB or 1GB. Its error reads
// "found ..., expected ...".
func ParseSize(text string) (Size, error) {
	s, err := scalars[reflect.TypeFor[Size]()].Parse(text)
	if err != nil {
		return 0, err
	}
	return s.(Size), nil
}

func parseSize(s string) (Size, error) {
	digits := strings.TrimRight(s, "KMGTiB")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 {
		return 0, settings.ErrNoHint
	}
	if digits == s {
		return 0, fmt.Errorf("which unit? %sB are bytes", s)
	}
	for _, u := range sizeUnits {
		if s[len(digits):] != u.name {
			continue
		}
		if n > math.MaxInt64/int64(u.size) {
			return 0, errors.New("too large")
		}
		return Size(n) * u.size, nil
	}
	if unit := s[len(digits):]; len(unit) == 1 {
		return 0, fmt.Errorf("did you mean %siB or %sB?", s, s)
	}
	return 0, settings.ErrNoHint
}

// durationParts matches weeks, days of 24 hours, and the rest, which time.ParseDuration reads. No part has a sign,
// since no duration may be negative.
var durationParts = regexp.MustCompile(`^(?:(\d{1,6})w)?(?:(\d{1,6})d)?([0-9.].*)?$`)

const (
	day     = 24 * time.Hour
	maxDays = int64(math.MaxInt64 / day)
)

// ParseDuration reads a duration in the syntax of the configuration, such as 72h, 7d or 2w. Its error reads
// "found ..., expected ...".
func ParseDuration(text string) (time.Duration, error) {
	d, err := scalars[reflect.TypeFor[time.Duration]()].Parse(text)
	if err != nil {
		return 0, err
	}
	return d.(time.Duration), nil
}

func parseDuration(s string) (time.Duration, error) {
	m := durationParts.FindStringSubmatch(s)
	if m == nil || s == "" {
		return 0, settings.ErrNoHint
	}
	rest, err := parseHours(m[3])
	if err != nil && strings.Trim(s, "0123456789.") == "" {
		return 0, fmt.Errorf("which unit? %ss are seconds", s)
	}
	if err != nil {
		return 0, settings.ErrNoHint
	}
	weeks, _ := strconv.ParseInt(m[1], 10, 64) // digits, or empty and so 0
	days, _ := strconv.ParseInt(m[2], 10, 64)
	if days += 7 * weeks; days >= maxDays || rest > math.MaxInt64-time.Duration(days)*day {
		return 0, errors.New("too long")
	}
	return time.Duration(days)*day + rest, nil
}

func parseHours(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	return time.ParseDuration(s)
}

// formatDuration formats d as Duration.String does, without units that are zero: 24h, not 24h0m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// PortRange is the range of ports from First to Last, inclusive.
type PortRange struct {
	First, Last uint16
}

var anyPort = PortRange{1, 65535}

// String returns the range in the syntax of the configuration: 443, 1024-65535 or any.
func (r PortRange) String() string {
	switch {
	case r == anyPort:
		return "any"
	case r.First == r.Last:
		return strconv.Itoa(int(r.First))
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

func parsePorts(s string) (PortRange, error) {
	if s == "any" {
		return anyPort, nil
	}
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		last = first
	}
	a, errA := parseInt(first)
	b, errB := parseInt(last)
	switch {
	case errA != nil || errB != nil:
		return PortRange{}, settings.ErrNoHint
	case a < 1 || b > 65535:
		return PortRange{}, errors.New("ports are 1 to 65535")
	case a > b:
		return PortRange{}, fmt.Errorf("did you mean %d-%d?", b, a)
	}
	return PortRange{uint16(a), uint16(b)}, nil
}

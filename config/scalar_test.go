package config

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestScalars(t *testing.T) {
	const none = "no"
	tests := []struct {
		of   reflect.Type
		text string
		want string // formatted again, or the hint, or none
	}{
		{reflect.TypeFor[time.Duration](), "24h", "24h"},
		{reflect.TypeFor[time.Duration](), "150s", "2m30s"},
		{reflect.TypeFor[time.Duration](), "500ms", "500ms"},
		{reflect.TypeFor[time.Duration](), "90d", "2160h"},
		{reflect.TypeFor[time.Duration](), "2w", "336h"},
		{reflect.TypeFor[time.Duration](), "1w1d1h1m1s", "193h1m1s"},
		{reflect.TypeFor[time.Duration](), "1.5h", "1h30m"},
		{reflect.TypeFor[time.Duration](), "0", "0s"},
		{reflect.TypeFor[time.Duration](), "", none},
		{reflect.TypeFor[time.Duration](), "15", "which unit? 15s are seconds"},
		{reflect.TypeFor[time.Duration](), "1d5", none},
		{reflect.TypeFor[time.Duration](), "1d-5h", none},
		{reflect.TypeFor[time.Duration](), "-1h", none},
		{reflect.TypeFor[time.Duration](), "1y", none},
		{reflect.TypeFor[time.Duration](), "999999w", "too long"},
		{reflect.TypeFor[time.Duration](), "106751d23h59m", "too long"},
		{reflect.TypeFor[time.Duration](), "106750d", "2562000h"},
		{reflect.TypeFor[time.Duration](), "9999999999h", none},
		{reflect.TypeFor[Size](), "64MiB", "64MiB"},
		{reflect.TypeFor[Size](), "500KiB", "500KiB"},
		{reflect.TypeFor[Size](), "10MB", "10MB"},
		{reflect.TypeFor[Size](), "1024KiB", "1MiB"},
		{reflect.TypeFor[Size](), "7B", "7B"},
		{reflect.TypeFor[Size](), "0B", "0B"},
		{reflect.TypeFor[Size](), "512", "which unit? 512B are bytes"},
		{reflect.TypeFor[Size](), "64M", "did you mean 64MiB or 64MB?"},
		{reflect.TypeFor[Size](), "64mb", none},
		{reflect.TypeFor[Size](), "-1B", none},
		{reflect.TypeFor[Size](), "B", none},
		{reflect.TypeFor[Size](), "8000000TiB", "8000000TiB"},
		{reflect.TypeFor[Size](), "90000000TiB", "too large"},
		{reflect.TypeFor[PortRange](), "80", "80"},
		{reflect.TypeFor[PortRange](), "1024-65535", "1024-65535"},
		{reflect.TypeFor[PortRange](), "1-65535", "any"},
		{reflect.TypeFor[PortRange](), "any", "any"},
		{reflect.TypeFor[PortRange](), "0", "ports are 1 to 65535"},
		{reflect.TypeFor[PortRange](), "1-65536", "ports are 1 to 65535"},
		{reflect.TypeFor[PortRange](), "9-1", "did you mean 1-9?"},
		{reflect.TypeFor[PortRange](), "1-2-3", none},
		{reflect.TypeFor[PortRange](), "http", none},
		{reflect.TypeFor[netip.Prefix](), "::ffff:10.1.2.3", "10.1.2.3"},
		{reflect.TypeFor[netip.Prefix](), "::ffff:10.1.2.3/128", "10.1.2.3"},
		{reflect.TypeFor[netip.Prefix](), "::ffff:10.0.0.0/104", "10.0.0.0/8"},
		{reflect.TypeFor[netip.Prefix](), "::ffff:0:0/96", "0.0.0.0/0"},
		{reflect.TypeFor[netip.Prefix](), "::ffff:0:0/95", "write an IPv4 network as IPv4"},
		{reflect.TypeFor[netip.Prefix](), "::ffff:10.1.2.3/104", "did you mean 10.0.0.0/8 or 10.1.2.3?"},
		{reflect.TypeFor[netip.Prefix](), "64:ff9b::/96", "64:ff9b::/96"},
		{reflect.TypeFor[netip.Prefix](), "fe80::1%eth0", none},
		{reflect.TypeFor[netip.Addr](), "::ffff:10.1.2.3", "10.1.2.3"},
		{reflect.TypeFor[int](), "010", none},
		{reflect.TypeFor[int](), "0x10", none},
		{reflect.TypeFor[int](), "1_000", none},
		{reflect.TypeFor[bool](), "yes", none},
		{reflect.TypeFor[bool](), "True", none},
	}
	for _, tt := range tests {
		s := scalars[tt.of]
		value, err := s.Parse(tt.text)
		got := none
		if err == nil {
			got = s.Format(value)
		} else if hint := strings.TrimPrefix(err.Error(), fmt.Sprintf("found %q, expected %s", tt.text, s.Expected())); hint != "" {
			got = strings.TrimPrefix(hint, "; ")
		}
		if got != tt.want {
			t.Errorf("parse %s of %q = %q, want %q", tt.of, tt.text, got, tt.want)
		}
	}
}

// TestFormatIsRead: what Values writes, set reads back to the same value.
func TestFormatIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for _, value := range []any{
			time.Duration(rapid.Int64Range(0, int64(maxDays*int64(day))-1).Draw(t, "duration")),
			Size(rapid.Int64Min(0).Draw(t, "size")),
			PortRange{1, rapid.Uint16Min(1).Draw(t, "port")},
			rapid.Int().Draw(t, "int"),
			rapid.Bool().Draw(t, "bool"),
		} {
			s := scalars[reflect.TypeOf(value)]
			got, err := s.Parse(s.Format(value))
			if err != nil || got != value {
				t.Fatalf("parse(format(%v)) = %v, %v (text %q)", value, got, err, s.Format(value))
			}
		}
	})
}

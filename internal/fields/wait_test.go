package fields

import (
	"net/http"
	"testing"
	"time"
)

type limits struct{ retryAfter, reset time.Duration }

func TestLimits(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		name   string
		fields []string // names and values
		want   limits
	}{
		{"nothing", nil, limits{}},
		{"seconds", []string{"Retry-After", "120"}, limits{retryAfter: 2 * time.Minute}},
		{"a date", []string{"Retry-After", "Sat, 21 Nov 2026 12:02:00 GMT"}, limits{retryAfter: 2 * time.Minute}},
		{"a date of the past", []string{"Retry-After", "Sat, 21 Nov 2026 11:02:00 GMT"}, limits{}},
		{"zero", []string{"Retry-After", "0"}, limits{}},
		{"less than nothing", []string{"Retry-After", "-5"}, limits{}},
		{"too many seconds", []string{"Retry-After", "9223372036854775807"}, limits{retryAfter: 7 * 24 * time.Hour}},
		{"more than a number holds", []string{"Retry-After", "92233720368547758070"}, limits{retryAfter: 7 * 24 * time.Hour}},
		{"a sign", []string{"Retry-After", "+5"}, limits{}},
		{"garbage", []string{"Retry-After", "soon"}, limits{}},
		{"a quota that is spent", []string{"RateLimit", `"default";r=0;t=30`}, limits{reset: 30 * time.Second}},
		{"a quota with a rest", []string{"RateLimit", `"default";r=1;t=30`}, limits{}},
		{"two quotas", []string{"RateLimit", `"hour";r=0;t=300, "second";r=0;t=1, "day";r=9;t=9000`}, limits{reset: 5 * time.Minute}},
		{"two fields", []string{"RateLimit", `"a";r=0;t=3`, "RateLimit", `"b";r=0;t=4`}, limits{reset: 4 * time.Second}},
		{"no time", []string{"RateLimit", `"default";r=0`}, limits{}},
		{"an older form", []string{"RateLimit", `limit=10, remaining=0, reset=7`}, limits{reset: 7 * time.Second}},
		{"the oldest form", []string{"RateLimit-Remaining", "0", "RateLimit-Reset", "7"}, limits{reset: 7 * time.Second}},
		{"the oldest form, with a rest", []string{"RateLimit-Remaining", "3", "RateLimit-Reset", "7"}, limits{}},
		{"the oldest form, without a time", []string{"RateLimit-Remaining", "0"}, limits{}},
		{"neither form", []string{"RateLimit", `;;`}, limits{}},
		{"words for numbers", []string{"RateLimit", `"default";r=none;t=30`}, limits{}},
	} {
		h := http.Header{}
		for i := 0; i < len(row.fields); i += 2 {
			h.Add(row.fields[i], row.fields[i+1])
		}
		if got := (limits{RetryAfter(h, now), QuotaReset(h)}); got != row.want {
			t.Errorf("%s: %q: RetryAfter and QuotaReset = %+v, want %+v", row.name, row.fields, got, row.want)
		}
	}
}

func TestPreferredWait(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"wait=10": 10 * time.Second, "respond-async, wait=5; x=y": 5 * time.Second, `WAIT="7"`: 7 * time.Second, "wait = 0": 0,
	} {
		if got, ok := PreferredWait(http.Header{"Prefer": {in}}); !ok || got != want {
			t.Errorf("PreferredWait(%q) = %v, %t; want %v", in, got, ok, want)
		}
	}
	for _, in := range []string{"", "wait", "wait=", "wait=-1", "wait=1.5", "respond-async", "await=3"} {
		if got, ok := PreferredWait(http.Header{"Prefer": {in}}); ok {
			t.Errorf("PreferredWait(%q) = %v, want none", in, got)
		}
	}
}

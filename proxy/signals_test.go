package proxy

import (
	"net/http"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/ratelimit"
)

func TestOutcome(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		name   string
		fields []string // names and values
		want   ratelimit.Outcome
	}{
		{"nothing", nil, ratelimit.Outcome{}},
		{"seconds", []string{"Retry-After", "120"}, ratelimit.Outcome{RetryAfter: 2 * time.Minute}},
		{"a date", []string{"Retry-After", "Sat, 21 Nov 2026 12:02:00 GMT"}, ratelimit.Outcome{RetryAfter: 2 * time.Minute}},
		{"a date of the past", []string{"Retry-After", "Sat, 21 Nov 2026 11:02:00 GMT"}, ratelimit.Outcome{}},
		{"zero", []string{"Retry-After", "0"}, ratelimit.Outcome{}},
		{"less than nothing", []string{"Retry-After", "-5"}, ratelimit.Outcome{}},
		{"too many seconds", []string{"Retry-After", "9223372036854775807"}, ratelimit.Outcome{RetryAfter: 7 * 24 * time.Hour}},
		{"more than a number holds", []string{"Retry-After", "92233720368547758070"}, ratelimit.Outcome{RetryAfter: 7 * 24 * time.Hour}},
		{"a sign", []string{"Retry-After", "+5"}, ratelimit.Outcome{}},
		{"garbage", []string{"Retry-After", "soon"}, ratelimit.Outcome{}},
		{"a quota that is spent", []string{"RateLimit", `"default";r=0;t=30`}, ratelimit.Outcome{Spent: 30 * time.Second}},
		{"a quota with a rest", []string{"RateLimit", `"default";r=1;t=30`}, ratelimit.Outcome{}},
		{"two quotas", []string{"RateLimit", `"hour";r=0;t=300, "second";r=0;t=1, "day";r=9;t=9000`}, ratelimit.Outcome{Spent: 5 * time.Minute}},
		{"two fields", []string{"RateLimit", `"a";r=0;t=3`, "RateLimit", `"b";r=0;t=4`}, ratelimit.Outcome{Spent: 4 * time.Second}},
		{"no time", []string{"RateLimit", `"default";r=0`}, ratelimit.Outcome{}},
		{"an older form", []string{"RateLimit", `limit=10, remaining=0, reset=7`}, ratelimit.Outcome{Spent: 7 * time.Second}},
		{"the oldest form", []string{"RateLimit-Remaining", "0", "RateLimit-Reset", "7"}, ratelimit.Outcome{Spent: 7 * time.Second}},
		{"the oldest form, with a rest", []string{"RateLimit-Remaining", "3", "RateLimit-Reset", "7"}, ratelimit.Outcome{}},
		{"the oldest form, without a time", []string{"RateLimit-Remaining", "0"}, ratelimit.Outcome{}},
		{"neither form", []string{"RateLimit", `;;`}, ratelimit.Outcome{}},
		{"words for numbers", []string{"RateLimit", `"default";r=none;t=30`}, ratelimit.Outcome{}},
	} {
		h := http.Header{}
		for i := 0; i < len(row.fields); i += 2 {
			h.Add(row.fields[i], row.fields[i+1])
		}
		row.want.Status = 503
		if got := outcome(&http.Response{StatusCode: 503, Header: h}, now); got != row.want {
			t.Errorf("%s: outcome of %q = %+v, want %+v", row.name, row.fields, got, row.want)
		}
	}
}

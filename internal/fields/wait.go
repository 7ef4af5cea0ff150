package fields

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// RetryAfter returns the time that Retry-After asks to wait, in either of its forms, seconds or a date (RFC 9110
// section 10.2.3): 0 for a date in the past and for any other text, and a week at most.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	v := h.Get("Retry-After")
	if v == "" {
		return 0 // most responses: parsing "" as a date would allocate
	}
	if s, err := strconv.ParseUint(v, 10, 63); err == nil || errors.Is(err, strconv.ErrRange) {
		return seconds(int64(s))
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	return max(0, at.Sub(now))
}

// seconds returns n seconds, between 0 and a week, which is longer than any caller waits.
func seconds(n int64) time.Duration {
	const week = 7 * 24 * 60 * 60
	return time.Duration(max(0, min(n, week))) * time.Second
}

// QuotaReset returns the time until the quota that the response reports as used up is full again, and 0 if some of it
// remains. Of several such quotas the longest time counts. It reads draft-ietf-httpapi-ratelimit-headers in its present
// form, RateLimit: "a";r=0;t=30, and in two older ones: RateLimit: remaining=0, reset=30, and RateLimit-Remaining with
// RateLimit-Reset.
func QuotaReset(h http.Header) (longest time.Duration) {
	quota := func(remaining, reset any) {
		r, ok1 := remaining.(int64)
		t, ok2 := reset.(int64)
		if ok1 && ok2 && r <= 0 {
			longest = max(longest, seconds(t))
		}
	}
	if v := h["Ratelimit"]; len(v) > 0 {
		eachQuota(v, quota)
	}
	if v := h["Ratelimit-Remaining"]; len(v) > 0 {
		quota(integer(v), integer(h["Ratelimit-Reset"]))
	}
	return longest
}

// eachQuota calls quota for each quota of a RateLimit field, and not at all if the field has neither form.
func eachQuota(v []string, quota func(remaining, reset any)) {
	if list, err := httpsfv.UnmarshalList(v); err == nil {
		for _, member := range list {
			if item, ok := member.(httpsfv.Item); ok {
				r, _ := item.Params.Get("r")
				t, _ := item.Params.Get("t")
				quota(r, t)
			}
		}
		return
	}
	if d, err := httpsfv.UnmarshalDictionary(v); err == nil {
		quota(value(d, "remaining"), value(d, "reset"))
	}
}

// value returns the value of a member of d, or nil.
func value(d *httpsfv.Dictionary, name string) any {
	m, _ := d.Get(name)
	item, _ := m.(httpsfv.Item)
	return item.Value
}

// integer returns the value of a field that is one item, or nil.
func integer(v []string) any {
	item, _ := httpsfv.UnmarshalItem(v)
	return item.Value
}

// PreferredWait returns the first preference wait of Prefer, which is in whole seconds (RFC 7240 section 4.3), and
// whether there is one.
func PreferredWait(h http.Header) (time.Duration, bool) {
	for _, v := range h["Prefer"] {
		for p := range strings.SplitSeq(v, ",") {
			p, _, _ = strings.Cut(p, ";")
			name, value, _ := strings.Cut(p, "=")
			if !strings.EqualFold(strings.TrimSpace(name), "wait") {
				continue
			}
			seconds, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 31)
			return time.Duration(seconds) * time.Second, err == nil
		}
	}
	return 0, false
}

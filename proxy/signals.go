package proxy

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/robotsproxy/robotsproxy/ratelimit"
)

// outcome reads from an origin's answer what matters for the pace of its host.
func outcome(resp *http.Response, now time.Time) ratelimit.Outcome {
	return ratelimit.Outcome{Status: resp.StatusCode, RetryAfter: retryAfter(resp.Header, now), Spent: spent(resp.Header)}
}

// hasCredentials reports whether a request may name an account: the limits that its answer tells of may be those of the
// account.
func hasCredentials(h http.Header) bool { return len(h["Authorization"]) > 0 || len(h["Cookie"]) > 0 }

// retryAfter reads Retry-After in both its forms, seconds and a date (RFC 9110 section 10.2.3). What is past, and what is
// neither, is 0; more seconds than a number holds are the most that it does.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := h.Get("Retry-After")
	if v == "" {
		return 0
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

// seconds returns n seconds, within what a host may be waited for: a week is more than any caller takes.
func seconds(n int64) time.Duration {
	const week = 7 * 24 * 60 * 60
	return time.Duration(max(0, min(n, week))) * time.Second
}

// spent returns for how long nothing remains of a quota that the answer tells of, and 0 where something does. It knows
// the fields of draft-ietf-httpapi-ratelimit-headers in their present form, RateLimit: "a";r=0;t=30, and in both of their
// older ones, RateLimit: remaining=0, reset=30, and RateLimit-Remaining beside RateLimit-Reset.
func spent(h http.Header) (longest time.Duration) {
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

// eachQuota gives what remains of each quota of a RateLimit field, and when it is full again.
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
	d, err := httpsfv.UnmarshalDictionary(v)
	if err != nil {
		return // neither form: the field says nothing
	}
	quota(value(d, "remaining"), value(d, "reset"))
}

// value returns the value of a member of d, nil where it has none.
func value(d *httpsfv.Dictionary, name string) any {
	if m, ok := d.Get(name); ok {
		if item, ok := m.(httpsfv.Item); ok {
			return item.Value
		}
	}
	return nil
}

// integer reads a field that is one number; nil where it is not.
func integer(v []string) any {
	item, err := httpsfv.UnmarshalItem(v)
	if err != nil {
		return nil
	}
	return item.Value
}

package robots

import (
	"net/http"
	"strconv"
	"time"

	"github.com/pquerna/cachecontrol/cacheobject"
)

// lifetime returns for how long an answer may be used: what its own fields say (RFC 9111 section 4.2), at least MinTTL, so
// that no site makes us ask for every request, and at most a day (RFC 9309 section 2.4).
func (f *Fetcher) lifetime(h http.Header, now time.Time) time.Duration {
	said, ok := saidLifetime(h, now)
	if !ok {
		return f.options.TTL
	}
	return min(max(said, f.options.MinTTL), longest)
}

func saidLifetime(h http.Header, now time.Time) (time.Duration, bool) {
	control, err := cacheobject.ParseResponseCacheControl(h.Get("Cache-Control"))
	if err == nil {
		switch {
		case control.NoStore, control.NoCachePresent:
			return 0, true
		case control.MaxAge >= 0:
			return time.Duration(control.MaxAge)*time.Second - age(h), true
		}
	}
	value := h.Get("Expires")
	if value == "" {
		return 0, false
	}
	expires, err := http.ParseTime(value)
	if err != nil {
		return 0, true // an invalid date, such as 0, means already expired (RFC 9111 section 5.3)
	}
	return expires.Sub(now), true
}

// age is for how long caches on the way have kept the answer.
func age(h http.Header) time.Duration {
	seconds, err := strconv.ParseUint(h.Get("Age"), 10, 31)
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// retryAfter returns the wait that an answer asks for, in either form (RFC 9110 section 10.2.3); 0 where it asks for none.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

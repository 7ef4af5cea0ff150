package robots

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
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
	control, err := cacheobject.ParseResponseCacheControl(strings.Join(h.Values("Cache-Control"), ", "))
	switch {
	case err != nil, control.NoStore, control.NoCachePresent: // what cannot be read is best taken for stale (RFC 9111 section 4.2.1)
		return 0, true
	case control.SMaxAge >= 0: // our copy is shared by all clients
		return time.Duration(control.SMaxAge)*time.Second - age(h), true
	case control.MaxAge >= 0:
		return time.Duration(control.MaxAge)*time.Second - age(h), true
	}
	value := h.Get("Expires")
	if value == "" {
		return 0, false
	}
	expires, err := http.ParseTime(value)
	if err != nil {
		return 0, true // an invalid date, such as 0, means already expired (RFC 9111 section 5.3)
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date // the origin's own clock may differ from ours (section 4.2.1)
	}
	return expires.Sub(now) - age(h), true
}

// age is for how long caches on the way have kept the answer.
func age(h http.Header) time.Duration {
	d, _ := seconds(h.Get("Age"))
	return d
}

// retryAfter returns the wait that an answer asks for, in either form (RFC 9110 section 10.2.3); 0 where it asks for none.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	if d, ok := seconds(value); ok {
		return d
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// seconds reads delta-seconds. A number that is too large stands for the largest (RFC 9111 section 1.2.2).
func seconds(value string) (time.Duration, bool) {
	n, err := strconv.ParseUint(value, 10, 31)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, false
	}
	return time.Duration(n) * time.Second, true
}

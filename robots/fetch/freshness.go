package fetch

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/pquerna/cachecontrol/cacheobject"
)

// lifetime returns the time for which a response with the fields h may be used. That is its freshness lifetime (RFC
// 9111 section 4.2), but at least MinTTL, so that no site is asked before each request, and at most MaxTTL.
func (f *Fetcher) lifetime(h http.Header, now time.Time) time.Duration {
	explicit, ok := explicitLifetime(h, now)
	if !ok {
		return f.options.TTL
	}
	return min(max(explicit, f.options.MinTTL), MaxTTL)
}

func explicitLifetime(h http.Header, now time.Time) (d time.Duration, ok bool) {
	control, err := cacheobject.ParseResponseCacheControl(strings.Join(h.Values("Cache-Control"), ", "))
	switch {
	case err != nil, control.NoStore, control.NoCachePresent: // invalid fields count as stale (RFC 9111 section 4.2.1)
		return 0, true
	case control.SMaxAge >= 0: // all clients share our copy
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
		return 0, true // an invalid date, such as 0, has passed (RFC 9111 section 5.3)
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date // the clock of the origin may differ from ours (section 4.2.1)
	}
	return expires.Sub(now) - age(h), true
}

// age returns the time that the response was in caches before it came here.
func age(h http.Header) time.Duration {
	d, _ := seconds(h.Get("Age"))
	return d
}

// retryAfter returns the delay of a Retry-After field in either form (RFC 9110 section 10.2.3), or 0.
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

// seconds parses delta-seconds. A larger number counts as the largest (RFC 9111 section 1.2.2).
func seconds(value string) (time.Duration, bool) {
	n, err := strconv.ParseUint(value, 10, 31)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, false
	}
	return time.Duration(n) * time.Second, true
}

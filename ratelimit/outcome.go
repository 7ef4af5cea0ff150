package ratelimit

import (
	"net/http"
	"time"
)

// An Outcome is what came of a request. The zero value is a request that was sent and got no answer; for one that was
// not sent there is Grant.Cancel.
type Outcome struct {
	// Status is the status of the response, 0 where there was none.
	Status int

	// RetryAfter is how long the response's Retry-After asks to wait (RFC 9110 section 10.2.3). It counts for 429 and 503
	// alone, up to 24 hours. Zero and less are as good as none.
	RetryAfter time.Duration

	// Spent is for how long nothing remains of the quota that the response's RateLimit fields tell of. It counts
	// whatever the status, up to an hour. Zero and less are as good as none.
	Spent time.Duration

	// Credentials says that the request had some, such as Authorization or Cookie. A 429 or a used-up quota may then be a limit
	// of one account, so it pauses the client only, until a second client gets the same.
	Credentials bool

	// Ended is when the request ended, if that was before it was released. If zero, it is that moment.
	Ended time.Time
}

// end returns when a request ended that was sent at start and is released now.
func (o Outcome) end(start, now time.Time) time.Time {
	if o.Ended.IsZero() || o.Ended.After(now) {
		return now
	}
	return later(start, o.Ended)
}

// Bounds of what a host may ask for. A RateLimit field comes with every answer, so a wrong one is not to cost a day.
const (
	longestRetryAfter = 24 * time.Hour
	longestSpent      = time.Hour
)

// pushesBack reports whether the host asked for fewer requests (RFC 6585 section 4, RFC 9110 section 15.6.4).
func (o Outcome) pushesBack() bool {
	return o.Status == http.StatusTooManyRequests || o.Status == http.StatusServiceUnavailable
}

// personal reports whether o may concern the account of the request only. A 503 concerns the host.
func (o Outcome) personal() bool { return o.Credentials && o.Status != http.StatusServiceUnavailable }

// told returns for how long the host asked to be left alone, in its own words: 0 if it did not.
func (o Outcome) told() time.Duration {
	told := max(0, min(o.Spent, longestSpent))
	if o.pushesBack() {
		told = max(told, min(o.RetryAfter, longestRetryAfter))
	}
	return told
}

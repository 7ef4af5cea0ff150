package ratelimit

import (
	"net/http"
	"time"
)

// An Outcome is the result of a request that was sent. The zero value means that there was no response. For a request
// that was not sent, call Grant.Cancel instead.
type Outcome struct {
	// Status is the status of the response, or 0 if there was no response.
	Status int

	// RetryAfter is the time in the Retry-After field of the response (RFC 9110 section 10.2.3). It counts only if
	// Status is 429 or 503, and up to 24 hours. If zero or negative, there was no such field.
	RetryAfter time.Duration

	// Spent is how long the quota in the RateLimit field of the response remains used up. It counts for every Status,
	// and up to an hour. If zero or negative, the quota is not used up.
	Spent time.Duration

	// Credentials reports whether the request had credentials, such as Authorization or Cookie. A 429 or a used-up
	// quota may then concern one account, so it pauses only the client, until a second client gets the same.
	Credentials bool

	// Ended is the moment when the request ended. If zero, it is the moment of Release.
	Ended time.Time
}

// end returns the end of a request that started at start and is released now.
func (o Outcome) end(start, now time.Time) time.Time {
	if o.Ended.IsZero() || o.Ended.After(now) {
		return now
	}
	return later(start, o.Ended)
}

// These are the longest pauses that a host may ask for. A RateLimit field comes with every response, so the bound is
// lower: a wrong one must not cost a day.
const (
	longestRetryAfter = 24 * time.Hour
	longestSpent      = time.Hour
)

// pushesBack reports whether the host asked for fewer requests (RFC 6585 section 4, RFC 9110 section 15.6.4).
func (o Outcome) pushesBack() bool {
	return o.Status == http.StatusTooManyRequests || o.Status == http.StatusServiceUnavailable
}

// throttles reports whether the host asked for fewer requests or for a pause.
func (o Outcome) throttles() bool { return o.pushesBack() || o.pauseAsked() > 0 }

// personal reports whether o may concern the account of the request only. A 503 concerns the host.
func (o Outcome) personal() bool { return o.Credentials && o.Status != http.StatusServiceUnavailable }

// pauseAsked returns the pause that the host named, 0 if it named no time.
func (o Outcome) pauseAsked() time.Duration {
	pause := max(0, min(o.Spent, longestSpent))
	if o.pushesBack() {
		pause = max(pause, min(o.RetryAfter, longestRetryAfter))
	}
	return pause
}

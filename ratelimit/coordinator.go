package ratelimit

import (
	"fmt"
	"time"
)

// A Coordinator makes several instances pace as one, so that a host sees them as one client. Package redislease
// implements it over Redis.
type Coordinator interface {
	// Lease asks for the right to send one request. It does not wait for it: a result without a Lease says when to ask
	// again. The lane has one question at a time, for the head of its queue. It asks if that request may start by the
	// state of this instance, after a call of Watch's function, and if the number of waiting requests has doubled. The
	// error is an *UnavailableError.
	Lease(LeaseRequest) (LeaseResult, error)

	// Sent reports that a request to key was sent without a Lease, or that one has ended. The other instances count
	// their Delay from it; delay is the one of that request. It does not block.
	Sent(key string, delay time.Duration)

	// Leave reports that no request in this instance waits for the Lease that was last refused. It does not block.
	Leave(key string)

	// Pause lets no request to key start for d in any instance. The source is Backoff or RetryAfter. Of several pauses
	// the one that ends last counts. It does not block: the other instances learn of the pause as soon as possible.
	Pause(key string, d time.Duration, source Source)

	// CountThrottle counts the event together with those of other instances, and returns the state of the lane after
	// it. If it returns an error, the event was not counted.
	CountThrottle(ThrottleEvent) (ThrottleResult, error)

	// Override sets the override of key in all instances, in place of the one before. The zero Override lifts it. An
	// error says that the other instances do not know the override yet; they learn of it as soon as possible.
	Override(key string, o Override) error

	// Watch calls f with a key when it is worth asking again for it. Calls may be lost. f must not block, and may wait
	// for a call of Sent, Leave, Pause, End or Cancel to return: none of these may call f.
	Watch(f func(key string))
}

// A Lease is the right to send one request. End gives it back when the request has ended, Cancel if the request was not
// sent. Only the first call counts. Neither blocks.
type Lease interface {
	End()
	Cancel()
}

// A LeaseRequest asks for the right to send one request.
type LeaseRequest struct {
	Key       string        // of the lane
	Delay     time.Duration // since the request before
	FromStart bool          // Delay counts from the start of that request, instead of its end
	Limit     int           // requests in flight in all instances, 1 with a Crawl-delay; 0: no limit
	InFlight  int           // requests in flight in this instance
	Waiting   int           // requests that wait in this instance, including this one
	LastLease int64         // the number of the last lease that this instance knows; 0: it knows of no lease
	LastHeard time.Time     // when this instance learned LastLease
	MaxHold   time.Duration // after which the lease is given back although the request goes on; 0: never
}

// A LeaseResult is the result of a LeaseRequest.
type LeaseResult struct {
	Lease       Lease         // nil: the request may not start yet
	Wait        time.Duration // when to ask again, if Lease is nil
	Gap         time.Duration // since the time from which a Delay counts, in any instance; negative: unknown
	Paused      time.Duration // how long the lane is paused
	PauseSource Source        // why it is paused
	Override    Override      // the last override that is known; while it is a stop, Lease is nil
	Rivals      []int         // how many requests wait in each other instance that has any; the instances take turns
	LastLease   int64         // the number of the last lease of any instance
	Mode        Mode
}

// A ThrottleEvent is a response with status 429 or 503 that named no time, or a response that may concern one client
// alone.
type ThrottleEvent struct {
	Key        string
	Client     string        // of the request
	Sent       time.Time     // when the request was sent; one that was in flight when a pause began does not count
	Streak     int           // how many pauses of the curve have followed one another, as this instance knows
	Personal   bool          // the lane is paused only if a second client gets one too: see Outcome.Credentials
	RetryAfter time.Duration // the pause that the host asked for; 0: it named no time
}

// A ThrottleResult is the state of a lane after a ThrottleEvent.
type ThrottleResult struct {
	Paused      time.Duration // how long the lane is paused; 0: it is not
	PauseSource Source        // why it is paused
	Streak      int           // as in ThrottleEvent
}

// An Override is an operator's instruction for one lane in all instances. The zero value is no instruction.
type Override struct {
	Stop  bool          // nothing is sent
	Floor time.Duration // the least Delay
	Until time.Time     // when the stop ends; zero: when it is lifted. An Override is kept for a year at most
}

// Mode says which instances paced a request.
type Mode string

// The modes.
const (
	ModeLocal  Mode = "local"  // this instance alone
	ModeRedis  Mode = "redis"  // all instances together
	ModeSpread Mode = "spread" // this instance, in its share of the time
)

// An UnavailableError says that nothing is sent because the other instances cannot be reached.
type UnavailableError struct {
	RetryAfter time.Duration // when to try again
	Err        error         // why they cannot be reached
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("ratelimit: the pace that is shared with other instances is not known: %v", e.Err)
}

func (e *UnavailableError) Unwrap() error { return e.Err }

package ratelimit

import (
	"fmt"
	"time"
)

// Coordinator is where several instances agree on whose turn it is, so that a host sees them as one. Package redislease has one.
type Coordinator interface {
	// Lease asks for the right to send one request, without waiting for it: if the answer holds no Lease, it says when
	// to ask again. One request for each key asks at a time, the one whose turn it is in this instance, and only when it
	// may start by what this instance itself knows. The error is an *UnavailableError.
	Lease(LeaseRequest) (LeaseResult, error)

	// Sent says that a request was sent to key without a Lease, or that one has ended, from which the others keep their
	// Delay. The one given here is its own. It does not block.
	Sent(key string, delay time.Duration)

	// Leave says that nobody waits in this instance for the Lease that was last refused. It does not block.
	Leave(key string)

	// Pause lets no request to key start for d, in any instance, and says why: Backoff or RetryAfter. Of several pauses the
	// one that ends last counts. It does not block: the other instances hear of it as soon as they can.
	Pause(key string, d time.Duration, why Source)

	// Complain counts an answer that named no time, or that may concern one client alone, together with those that other
	// instances got, and returns what that makes of the lane. An error says that nobody has counted it.
	Complain(Complaint) (Verdict, error)

	// Override sets the operator's order for key in all instances, in the place of the one before. The zero Override lifts it. An
	// error says that the other instances do not know yet; they will as soon as they can.
	Override(key string, o Override) error

	// Watch has f called when it is worth asking again for key. It is a hint, which may be lost; f must not block.
	Watch(f func(key string))
}

// A Lease is the right to send one request, which no other instance has at the time. It is given back by End when the
// request has ended, or by Cancel if it was not sent; whichever comes first counts. Neither blocks.
type Lease interface {
	End()
	Cancel()
}

// A LeaseRequest asks for the right to send one request.
type LeaseRequest struct {
	Key      string        // of the lane
	Delay    time.Duration // that must have passed since the request before
	Start    bool          // the Delay counts from the start of that request, and not from its end
	Limit    int           // how many requests may be under way in all instances; 0 is no limit. With a Crawl-delay, 1
	UnderWay int           // how many are, in this instance
	Waiting  int           // how many wait in this instance, the one that asks among them
	Last     int64         // the number of the last Lease that was heard of; 0 is none
	Heard    time.Time     // when that was
	Hold     time.Duration // after how long a request that goes on gives its lease back; 0 is never
}

// A LeaseResult is what came of an LeaseRequest.
type LeaseResult struct {
	Lease    Lease         // the right to send; nil if it is not its turn yet
	Wait     time.Duration // when to ask again, if there is no Lease
	Gap      time.Duration // since what a Delay counts from, in any instance; negative if nothing is known
	Paused   time.Duration // how long the lane still is paused
	PausedBy Source        // why
	Override Override      // the operator's last order, zero if there is none. An answer without news of it repeats it. While it is a stop, there is no Lease
	Rivals   []int         // how many wait in each other instance that has any; they take turns
	Last     int64         // the number of the last Lease, of any instance
	Mode     Mode
}

// A Complaint is a host's answer of 429 or 503 that named no time, or an answer that may concern one client alone.
type Complaint struct {
	Key      string
	Client   string        // whose request was answered so
	Sent     time.Time     // when that was sent: what was under way when a pause began tells nothing new
	Streak   int           // how far up the curve of pauses this instance knows the host
	Personal bool          // the lane is paused only if another client has heard the same: see Outcome.Credentials
	Told     time.Duration // for how long the host asked to be left alone; 0 if it named no time
}

// A Verdict is what complaints of all instances have come to.
type Verdict struct {
	Paused   time.Duration // how long the lane still is paused; 0 if it is not
	PausedBy Source        // why
	Streak   int           // how far up the curve it is
}

// An Override is an operator's word on one lane, for all instances. The zero value is none.
type Override struct {
	Stop  bool          // nothing is sent
	Floor time.Duration // the least Delay
	Until time.Time     // when the stop ends; zero is when it is lifted. Nobody remembers an order for more than a year
}

// Mode says by what a request was paced.
type Mode string

// The modes.
const (
	ModeLocal  Mode = "local"  // by this instance alone
	ModeRedis  Mode = "redis"  // by all instances together
	ModeSpread Mode = "spread" // by this instance, in its share of the time
)

// An UnavailableError says that nothing is sent, because Redis cannot be reached and Options say so.
type UnavailableError struct {
	RetryAfter time.Duration // when it is worth coming back
	Err        error         // what Redis said last
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("ratelimit: the pace that is shared with other instances is not known: %v", e.Err)
}

func (e *UnavailableError) Unwrap() error { return e.Err }

package ratelimit

import (
	"errors"
	"fmt"
	"time"
)

// A WaitError is the error of a request that would wait for longer than its MaxWait, or for which the queue is full.
type WaitError struct {
	Wait   time.Duration // predicted wait, after which to ask again
	Full   bool          // the queue is full, so a longer MaxWait would not help
	Source Source        // Backoff or RetryAfter if the host is paused for longer than MaxWait; else empty

	// OneClient reports whether only the client of the request is paused: see Outcome.Credentials.
	OneClient bool
}

func (e *WaitError) Error() string {
	switch {
	case e.Full:
		return fmt.Sprintf("ratelimit: the queue is full, its last place is %v away", e.Wait)
	case e.OneClient:
		return fmt.Sprintf("ratelimit: the host has pushed back to this client, and the request would wait %v", e.Wait)
	case e.Source != "":
		return fmt.Sprintf("ratelimit: the host is paused, and the request would wait %v", e.Wait)
	}
	return fmt.Sprintf("ratelimit: the request would wait %v", e.Wait)
}

// A StoppedError is the error of a request for a key that an operator has stopped.
type StoppedError struct {
	Until time.Time // end of the stop; zero: the call of Lift
}

func (e *StoppedError) Error() string {
	if e.Until.IsZero() {
		return "ratelimit: the key is stopped"
	}
	return fmt.Sprintf("ratelimit: the key is stopped until %s", e.Until.Format(time.RFC3339))
}

// ErrTooManyLanes is the error of a request for a key that has no lane while Options.MaxLanes other lanes are in use.
var ErrTooManyLanes = errors.New("ratelimit: too many keys are in use")

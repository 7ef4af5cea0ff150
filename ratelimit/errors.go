package ratelimit

import (
	"errors"
	"fmt"
	"time"
)

// A WaitError says that a request would wait longer than it wants to.
type WaitError struct {
	Wait   time.Duration // the wait foreseen: when to come back
	Full   bool          // there is no place left to wait in, whatever MaxWait is
	Source Source        // Backoff or RetryAfter if the host is paused for longer than the request would wait; else empty

	// OneClient says that only the client of the request is paused: see Outcome.Credentials.
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

// A StoppedError says that nothing may be sent to a key, by an operator's word.
type StoppedError struct {
	Until time.Time // when the stop ends; zero: when it is lifted
}

func (e *StoppedError) Error() string {
	if e.Until.IsZero() {
		return "ratelimit: the key is stopped"
	}
	return fmt.Sprintf("ratelimit: the key is stopped until %s", e.Until.Format(time.RFC3339))
}

// ErrTooManyLanes is returned for a key without a lane while MaxLanes others are in use.
var ErrTooManyLanes = errors.New("ratelimit: too many keys are in use")

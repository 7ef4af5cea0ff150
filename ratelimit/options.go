package ratelimit

import (
	"fmt"
	"time"
)

// Options configures a Limiter. The zero value is ready to use.
type Options struct {
	// MaxQueue is how many requests may wait for one key. One request of each client may always wait. If zero, 1000.
	MaxQueue int

	// MaxQueuePerClient is how many requests of one client may wait for one key. If zero, 250.
	MaxQueuePerClient int

	// MaxConcurrent is how many requests without a Delay may be in flight for one key, of all clients together. If
	// zero, 8. If negative, there is no limit.
	MaxConcurrent int

	// DefaultDelay spaces the starts of requests without a Delay. If zero, they are not spaced.
	DefaultDelay time.Duration

	// DefaultBurst is how many requests may start at once before DefaultDelay spaces them. If zero, 1.
	DefaultBurst int

	// ReleaseAfter is how long a request may hold its lane. If it goes on for longer, as a long download does, the lane
	// counts it as ended, and a Delay counts from that moment. If zero, 30 seconds.
	ReleaseAfter time.Duration

	// SpacingStart makes a Delay count from the start of the previous request instead of from its end. There is still
	// one request in flight at a time. A request starts at the moment of its Grant.
	SpacingStart bool

	// MaxLanes is how many lanes a Limiter holds at a time. If zero, 1,000,000, which take less than 400 MB.
	MaxLanes int

	// Coordinator paces several instances as one. Each Acquire then asks the Coordinator before a request starts, and
	// takes at least as long as its answer. MaxConcurrent holds for all instances together, and DefaultDelay spaces
	// their starts without a burst. If nil, this process paces alone.
	Coordinator Coordinator

	// Pauses stores pauses of more than a minute. If nil, they end with the process.
	Pauses Pauses
}

// withDefaults returns o with each zero field filled in.
func (o Options) withDefaults() *Options {
	for _, f := range []struct {
		field *int
		value int
	}{
		{&o.MaxQueue, 1000},
		{&o.MaxQueuePerClient, 250},
		{&o.MaxConcurrent, 8},
		{&o.DefaultBurst, 1},
		{&o.MaxLanes, 1_000_000},
	} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	if o.ReleaseAfter == 0 {
		o.ReleaseAfter = 30 * time.Second
	}
	return &o
}

// check returns an error if a field of o is out of range.
func (o Options) check() error {
	switch {
	case o.MaxQueue < 0:
		return fmt.Errorf("ratelimit: MaxQueue is %d, less than 0", o.MaxQueue)
	case o.MaxQueuePerClient < 0:
		return fmt.Errorf("ratelimit: MaxQueuePerClient is %d, less than 0", o.MaxQueuePerClient)
	case o.DefaultDelay < 0:
		return fmt.Errorf("ratelimit: DefaultDelay is %v, less than 0", o.DefaultDelay)
	case o.DefaultBurst < 0:
		return fmt.Errorf("ratelimit: DefaultBurst is %d, less than 0", o.DefaultBurst)
	case o.DefaultBurst > 1 && o.DefaultDelay == 0:
		return fmt.Errorf("ratelimit: DefaultBurst is %d, which means nothing without a DefaultDelay", o.DefaultBurst)
	case o.ReleaseAfter < 0:
		return fmt.Errorf("ratelimit: ReleaseAfter is %v, less than 0", o.ReleaseAfter)
	case o.MaxLanes < 0:
		return fmt.Errorf("ratelimit: MaxLanes is %d, less than 0", o.MaxLanes)
	}
	return nil
}

package ratelimit

import (
	"fmt"
	"time"
)

// Options are the rules for all lanes of one Limiter. The zero value holds good defaults.
type Options struct {
	// MaxQueue is how many requests may wait for one key, beside one of each client, which nobody crowds out. If zero, 1000.
	MaxQueue int

	// MaxQueuePerClient is how many requests of one client may wait for one key. If zero, 250.
	MaxQueuePerClient int

	// MaxConcurrent is how many requests without a Delay may be under way for one key, of all clients together. If
	// zero, 8; if negative, there is no limit.
	MaxConcurrent int

	// DefaultDelay spaces the starts of requests without a Delay. If zero, they are not spaced.
	DefaultDelay time.Duration

	// DefaultBurst is how many requests may start at once before DefaultDelay spaces them. If zero, 1.
	DefaultBurst int

	// ReleaseAfter is how long a request may hold its place in the lane. One that goes on for longer, such as a long
	// download, gives it back, and the Delay then counts from that moment. If zero, 30 seconds.
	ReleaseAfter time.Duration

	// SpacingStart measures a Delay from the start of one request to the start of the next, instead of from its end.
	// There is still one request under way at a time. The start is the moment of the Grant.
	SpacingStart bool

	// MaxLanes is how many lanes are kept at a time. If zero, 1,000,000, which cost less than 400 MB.
	MaxLanes int

	// Coordinator is where several instances agree on whose turn it is. A request that may start by what this process knows
	// then asks there first, so Acquire takes as long as the answer even if the way is free. MaxConcurrent holds for all
	// instances together, and DefaultDelay spaces their starts without any burst. If nil, this process paces alone.
	Coordinator Coordinator

	// Pauses keeps the pauses of more than a minute that hosts have asked for. If nil, a restart forgets them.
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

// check says what is wrong with o, as its owner wrote it.
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

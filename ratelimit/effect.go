package ratelimit

import (
	"sync"
	"time"
)

// An effect is what a move of a lane does to others: to those that wait, to timers, other instances and counters.
type effect struct {
	kind    effectKind
	waiter  *waiter       // of wakeGranted and wakeRefused
	after   time.Duration // of setTimer and setWatch; the Delay of askForLease and reportSent
	lease   Lease         // of endLease and cancelLease
	ask     *LeaseRequest // of askForLease
	backoff *backoff      // of keepPause and storePause
}

type effectKind int

const (
	_ effectKind = iota
	wakeGranted
	wakeRefused
	setTimer
	stopTimer
	keepPause  // store a pause, and report it to other instances
	storePause // store a pause that other instances know
	countCancelled
	countReserved
	countExpired

	// The others are for a lane that several instances share.

	setWatch
	askForLease
	leaveLine
	reportSent
	endLease
	cancelLease
)

// An outbox holds the effects of one move until the lane carries them out, and what the lane needs for that. A state only appends
// to effects.
type outbox struct {
	effects []effect // guarded by the lane's lock

	// carrying is held while effects are carried out. It guards the other fields.
	carrying sync.Mutex
	spare    []effect // takes the effects of the next move
	timer    *time.Timer
	watch    *time.Timer
}

// set has f run after d, instead of when t would have run it.
func set(t **time.Timer, d time.Duration, f func()) {
	if *t == nil {
		*t = time.AfterFunc(d, f)
		return
	}
	(*t).Reset(d)
}

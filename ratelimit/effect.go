package ratelimit

import (
	"sync"
	"time"
)

// An effect is what a move of a state does outside of the state: to requests that wait, timers, counters, stored pauses
// or other instances. The lane carries it out after it has unlocked the state, so that no move waits for it.
type effect struct {
	kind    effectKind
	waiter  *waiter       // of wakeGranted and wakeRefused
	after   time.Duration // of setTimer and setWatch; the Delay of askForLease and reportSent
	lease   Lease         // of endLease and cancelLease
	ask     *LeaseRequest // of askForLease
	backoff *backoff      // of reportPause and storePause
}

type effectKind int

const (
	_ effectKind = iota
	wakeGranted
	wakeRefused
	setTimer
	stopTimer
	reportPause // to other instances
	storePause
	countCancelled
	countReserved
	countExpired

	// These occur only if there is a Coordinator.

	setWatch
	askForLease
	leaveLine
	reportSent
	endLease
	cancelLease
)

// An outbox holds the effects of a move until the lane carries them out. The state only appends to effects. The lane
// uses two buffers in turn, so that a move allocates no memory for them.
type outbox struct {
	effects []effect // guarded by the lane's lock

	// carrying is held while effects are carried out. It guards the other fields.
	carrying sync.Mutex
	spare    []effect // takes the effects of the next move
	timer    *time.Timer
	watch    *time.Timer
}

// set makes *t call f after d.
func set(t **time.Timer, d time.Duration, f func()) {
	if *t == nil {
		*t = time.AfterFunc(d, f)
		return
	}
	(*t).Reset(d)
}

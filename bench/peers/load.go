//go:build linux

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// warm has each client send a request, at most 32 at once. The connections are open from then on.
func warm(clients []client) error {
	errs := make([]error, len(clients))
	places := make(chan struct{}, 32)
	var running sync.WaitGroup
	for i, c := range clients {
		places <- struct{}{}
		running.Go(func() {
			errs[i] = c.get()
			<-places
		})
	}
	running.Wait()
	return first(errs)
}

// first returns the first error with the number of others: a proxy that fails may fail everywhere.
func first(errs []error) error {
	failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(failed) > 1 {
		return fmt.Errorf("%w (and %d more)", failed[0], len(failed)-1)
	}
	return errors.Join(failed...)
}

// closedLoop has each client send requests without a pause.
func closedLoop(clients []client, d time.Duration) (requests int, took time.Duration, err error) {
	sent, errs := make([]int, len(clients)), make([]error, len(clients))
	begun := time.Now()
	var running sync.WaitGroup
	for i, c := range clients {
		running.Go(func() {
			for errs[i] == nil && time.Since(begun) < d {
				errs[i] = c.get()
				sent[i]++
			}
		})
	}
	running.Wait()
	for _, n := range sent {
		requests += n
	}
	return requests, time.Since(begun), first(errs)
}

// openLoop sends requests at a rate, at random times as independent clients do, whether or not the responses to those
// before have arrived. It returns how long after its time each was answered, sorted. The times are the same in each run.
func openLoop(clients []client, rate float64, d time.Duration) ([]time.Duration, error) {
	clock, err := newTimer()
	if err != nil {
		return nil, err
	}
	defer clock.Close()
	due := make(chan time.Time, int(rate*d.Seconds())+1)
	times, errs := make([][]time.Duration, len(clients)), make([]error, len(clients))
	var running sync.WaitGroup
	for i, c := range clients {
		running.Go(func() {
			for at := range due {
				if errs[i] == nil {
					errs[i] = c.get()
				}
				times[i] = append(times[i], time.Since(at))
			}
		})
	}
	err = clock.fill(due, rate)
	close(due)
	running.Wait()
	all := slices.Concat(times...)
	slices.Sort(all)
	return all, errors.Join(err, first(errs))
}

// timer wakes its goroutine at the right time. Those of Go are late by up to a millisecond if nothing else happens.
type timer struct {
	*os.File
	fd int // File.Fd would make reads block the processor
}

func newTimer() (timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return timer{}, os.NewSyscallError("timerfd_create", err)
	}
	return timer{os.NewFile(uintptr(fd), "timer"), fd}, nil
}

func (t timer) sleep(d time.Duration) error {
	spec := &unix.ItimerSpec{Value: unix.NsecToTimespec(d.Nanoseconds())}
	if err := unix.TimerfdSettime(t.fd, 0, spec, nil); err != nil {
		return os.NewSyscallError("timerfd_settime", err)
	}
	var expirations [8]byte
	_, err := t.Read(expirations[:])
	return err
}

// fill sends times to due until it has as many as it has room for, each at its time.
func (t timer) fill(due chan<- time.Time, rate float64) error {
	random := rand.New(rand.NewPCG(1, 2))
	next := time.Now()
	for range cap(due) {
		next = next.Add(time.Duration(random.ExpFloat64() / rate * float64(time.Second)))
		if wait := time.Until(next); wait > 0 {
			if err := t.sleep(wait); err != nil {
				return err
			}
		}
		due <- next
	}
	return nil
}

// quantile returns the time within which the share q of sorted times lies.
func quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	return times[min(int(q*float64(len(times))), len(times)-1)]
}

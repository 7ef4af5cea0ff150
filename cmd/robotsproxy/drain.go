package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/internal/systemd"
)

// stopSignals returns two contexts: the first ends with the first SIGTERM or interrupt, the second with the next. A
// third signal kills the process. release must be called.
func stopSignals(parent context.Context) (drain, abort context.Context, release func()) {
	drain, startDrain := context.WithCancel(parent)
	abort, startAbort := context.WithCancel(parent)
	signals, released := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for _, end := range []func(){startDrain, startAbort} {
			select {
			case <-signals:
				end()
			case <-released:
			}
		}
		signal.Stop(signals)
	}()
	return drain, abort, func() {
		close(released)
		startDrain()
		startAbort()
	}
}

// errAborted is the result of drain after a second signal.
var errAborted = errors.New("a second signal ended the drain")

// drain makes the instance unready, waits drain_delay, stops accepting connections, and waits for the requests in
// progress. After the grace it aborts the rest and logs that, which is not an error. When abort ends, it aborts all and
// returns errAborted.
func (s *service) drain(abort context.Context) error {
	s.draining.Store(true)
	s.announceDrain()
	cfg := s.components.control.config()
	select {
	case <-time.After(cfg.DrainDelay):
	case <-abort.Done():
	}
	ctx, cancel := context.WithTimeout(abort, cfg.Grace)
	defer cancel()
	err := s.components.server.Shutdown(ctx)
	switch {
	case abort.Err() != nil:
		s.log.Warn("a second signal: the remaining requests and tunnels are aborted")
		return errAborted
	case errors.Is(err, context.DeadlineExceeded):
		s.log.Warn("the grace period is over; the remaining requests and tunnels are aborted", "grace", cfg.Grace)
		return nil
	}
	return err
}

// announceDrain tells the operator what the drain waits for.
func (s *service) announceDrain() {
	d := s.drainState()
	s.notify(systemd.Stopping, systemd.Status(d.text()))
	if s.terminal != nil {
		fmt.Fprintf(s.terminal, "\rDraining: %s. ^C again ends now.\n", d.text()) // over the "^C" of the terminal
		return
	}
	s.log.Info("draining", "grace", s.components.control.config().Grace, "active", d.Active, "tunnels", d.Tunnels)
}

// drainState is what a drain waits for, and how long.
type drainState admin.Drain

func (s *service) drainState() drainState {
	server, cfg := s.components.server, s.components.control.config()
	return drainState{
		Active: int(server.Active()), Tunnels: int(server.Tunnels()), Seconds: inSeconds(cfg.DrainDelay + cfg.Grace),
	}
}

func (d drainState) text() string {
	return fmt.Sprintf("%s and %s, at most %g s", count(d.Active, "request"), count(d.Tunnels, "tunnel"), d.Seconds)
}

// startDrain is the operation of the admin API. The drain continues after it returns.
func (s *service) startDrain() admin.Drain {
	state := s.drainState()
	s.requestDrain()
	return admin.Drain(state)
}

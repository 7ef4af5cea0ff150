package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/proxy"
)

// At an upgrade the running process (the old one) starts its program again. The new process gets the listeners and two
// connections to the old one. It opens its files and reports that it is ready. The old process hands over its lanes (see
// ratelimit.HandOver) and lets the new one serve. Then it accepts no more connections, and ends after its last request.
// If the new process fails before it serves, the old one continues as before.

func newUpgrade(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Replace a running robotsproxy by the program that is installed now, without a gap",
		Long: `Replace a running robotsproxy by the program that is installed now, without a gap.

The running process starts its program again, with the same arguments and variables. The new process reads the
configuration, takes over the listeners and the pace of each host, and serves. The old process answers the requests that
it has and ends. If the new process fails before it serves, the old one continues, and the command fails.`,
		Args: noArgs,
	}
	api := newAPICommand(cmd, std)
	cmd.RunE = func(*cobra.Command, []string) error {
		var u admin.Upgrade
		return api.show(apiRequest{method: http.MethodPost, path: "/upgrade"}, &u, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "Process %d (robotsproxy %s) serves now. Process %d ends after its last request.\n",
				u.PID, u.Version, u.OldPID)
			return err
		})
	}
	return cmd
}

var errUpgrading = errors.New("an upgrade is in progress")

// upgrade replaces this process. After an error it continues to serve.
func (s *service) upgrade() (admin.Upgrade, error) {
	if !s.upgrading.TryLock() {
		return admin.Upgrade{}, errUpgrading
	}
	defer s.upgrading.Unlock()
	if err := s.mayUpgrade(); err != nil {
		return admin.Upgrade{}, err
	}
	s.log.Info("upgrading", "program", s.program)
	next, err := s.replace()
	if err != nil {
		s.log.Error("the upgrade has failed; this process continues to serve", "err", err)
		return admin.Upgrade{}, err
	}
	s.notify(fmt.Sprintf("MAINPID=%d", next.process.Pid))
	s.next = next
	close(s.replaced)
	return admin.Upgrade{PID: next.process.Pid, Version: next.version, OldPID: os.Getpid()}, nil
}

func (s *service) mayUpgrade() error {
	switch {
	case s.draining.Load():
		return errors.New("this robotsproxy is about to stop")
	case s.next != nil:
		return fmt.Errorf("process %d has replaced this one already", s.next.process.Pid)
	case os.Getpid() == 1:
		return errors.New("the end of process 1 would end its container; start another container instead")
	}
	return nil
}

// replace starts a new process, hands the lanes over, and lets it serve.
func (s *service) replace() (*successor, error) {
	next, err := startSuccessor(s.program, paceName(s.cfg), s.sockets)
	if err != nil {
		return nil, err
	}
	if err = next.awaitReady(); err == nil {
		err = s.mayUpgrade() // a drain may have begun
	}
	if err == nil && s.components.redis == nil {
		err = s.components.limiter.HandOver(next.lanes)
	}
	if err != nil {
		next.kill()
		return nil, err
	}
	// If this fails, the new process has just ended, and no process has the lanes.
	_ = s.components.control.handOver(func(o orders) error {
		return next.control.send(upgradeMessage{Serve: true, Orders: &o})
	})
	go s.followSuccessor(next.control)
	return next, nil
}

// retire ends this process after another has replaced it. Requests that wait for their host's pace may take as long as
// they may wait, and other requests as long as that. After a signal, or after the end of the other process, all have
// the grace. When abort ends, all are aborted.
func (s *service) retire(signaled, abort context.Context) error {
	server, cfg := s.components.server, s.components.control.config()
	grace := cfg.Grace
	s.log.Info("another process serves now; this one ends after its last request", "pid", s.next.process.Pid,
		"active", server.Active(), "tunnels", server.Tunnels())
	ctx, cancel := context.WithTimeout(abort, grace+cfg.Pacing.MaxWaitCap)
	defer cancel()
	go func() {
		select {
		case <-signaled.Done():
		case <-s.next.control.ended:
		case <-ctx.Done():
		}
		time.AfterFunc(grace, cancel)
	}()
	s.proxyListener.hold()
	go func() { _ = s.admin.Shutdown(ctx) }()
	if err := server.Retire(ctx, grace); err != nil && ctx.Err() == nil {
		return err
	}
	if ctx.Err() != nil {
		s.log.Warn("the remaining requests and tunnels were aborted")
	}
	s.awaitPredecessor(ctx)
	return nil
}

// awaitPredecessor waits for the process before this one, whose requests ask for places through this one.
func (s *service) awaitPredecessor(ctx context.Context) {
	prior := s.components.control.prior
	if prior == nil {
		return
	}
	select {
	case <-prior.control.ended:
	case <-ctx.Done():
	}
}

// upgradeMessage is a message on the control connection.
type upgradeMessage struct {
	Ready   bool   `json:"ready,omitempty"`   // from the new process: it can take over
	Version string `json:"version,omitempty"` // of the new process
	Error   string `json:"error,omitempty"`   // from the new process: it cannot
	Serve   bool   `json:"serve,omitempty"`   // from the old process: it has handed over

	// Orders are those in force, with Serve, and from the new process those that the old one must follow. The reply to
	// the latter has Ended or Error.
	Orders *orders     `json:"orders,omitempty"`
	Ended  proxy.Ended `json:"ended,omitzero"`
}

// upgradeControl is one end of the control connection.
type upgradeControl struct {
	net.Conn
	decoder *json.Decoder
	ended   chan struct{} // closed when the other process has ended
}

func newUpgradeControl(c net.Conn) *upgradeControl {
	return &upgradeControl{c, json.NewDecoder(c), make(chan struct{})}
}

func (c *upgradeControl) send(m upgradeMessage) error { return json.NewEncoder(c).Encode(m) }

func (c *upgradeControl) receive() (m upgradeMessage, err error) {
	err = c.decoder.Decode(&m)
	return m, err
}

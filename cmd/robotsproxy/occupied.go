package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/robotsproxy/robotsproxy/admin"
)

// occupiedLook is the time between two attempts to listen at an address that another robotsproxy is about to leave.
const occupiedLook = 50 * time.Millisecond

// listen opens the listener of a key. If a robotsproxy with the same data holds the address and drains, listen waits for
// its end: clients that connect to a listener that is open already wait too, and are not refused.
func (s *service) listen(key, address string) (net.Listener, error) {
	for logged := false; ; time.Sleep(occupiedLook) {
		l, err := s.sockets.listen(key, address)
		if !errors.Is(err, syscall.EADDRINUSE) {
			return l, err
		}
		other, known := s.occupant()
		switch {
		case !known:
			return nil, err
		case other.Ready:
			return nil, usage(fmt.Errorf("robotsproxy runs already with this data folder, on %s with process ID %d; "+
				"robotsproxy upgrade replaces it without a gap", other.Listen, other.PID))
		case !logged:
			logged = true
			s.early.release("") // the banner comes when the wait is over
			s.log.Info("waiting for the robotsproxy that is about to stop", key, address, "pid", other.PID)
		}
	}
}

// occupant returns the state of the robotsproxy that runs with this configuration, if there is one.
func (s *service) occupant() (state admin.Status, known bool) {
	i, err := findInstance(s.cfg, "")
	if err != nil {
		return state, false
	}
	defer i.client.CloseIdleConnections() // or each look would hold one, up to admin.connections_per_client
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err = i.call(ctx, "GET", "/status", nil, nil, &state)
	return state, err == nil
}

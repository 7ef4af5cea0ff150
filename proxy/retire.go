package proxy

import (
	"context"
	"time"
)

const (
	// idleLinger is how long a retiring Server keeps connections without a request.
	idleLinger = 5 * time.Second

	// connectionsLook is the time between two counts of the open connections.
	connectionsLook = 20 * time.Millisecond
)

// Retire ends a Server after another process has begun to accept the connections of its listener. The caller must have
// stopped that listener from accepting.
//
// Retire asks clients to close each connection after the next response, by Connection: close or GOAWAY. It closes no
// idle connection for five seconds, or for the grace if that is shorter: a client might just be sending a request on it.
// After the grace it closes raw tunnels and WebSockets. It waits for all other requests, including those that wait for
// their host. When ctx ends, it ends the rest as Close does, and returns the error of ctx.
func (s *Server) Retire(ctx context.Context, grace time.Duration) error {
	s.retiring.Store(true)
	streams := time.AfterFunc(grace, func() { s.endStreams(errStopping) })
	defer streams.Stop()
	s.awaitConnections(ctx, min(grace, idleLinger))
	return s.Shutdown(ctx)
}

// awaitConnections returns when clients have closed all connections, after the time, or when ctx ends.
func (s *Server) awaitConnections(ctx context.Context, longest time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	look := time.NewTicker(connectionsLook)
	defer look.Stop()
	for s.Connections() > 0 {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

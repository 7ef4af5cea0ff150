package proxy

import (
	"context"
	"time"
)

// connectionsLook is the time between two counts of the open connections.
const connectionsLook = 20 * time.Millisecond

// Retire ends a Server after another process has begun to accept the connections of its listener. The caller must have
// stopped that listener from accepting.
//
// Retire serves the connections that are open. It asks clients to close each one after the next response, by Connection:
// close or GOAWAY, and closes no idle connection for the grace: a client might just be sending a request on it. Then it
// closes raw tunnels, WebSockets and idle connections, and waits for the other requests, including those that wait for
// their host. When ctx ends, it ends the rest as Close does, and returns the error of ctx.
func (s *Server) Retire(ctx context.Context, grace time.Duration) error {
	s.retiring.Store(true)
	s.awaitConnections(ctx, grace)
	s.endStreams(errStopping)
	return s.Shutdown(ctx)
}

// awaitConnections returns when clients have closed all connections, after the grace, or when ctx ends.
func (s *Server) awaitConnections(ctx context.Context, grace time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, grace)
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

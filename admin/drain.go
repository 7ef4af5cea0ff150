package admin

import "net/http"

// Drain is the response to a drain.
type Drain struct {
	Active  int     `json:"active"`  // requests in progress
	Tunnels int     `json:"tunnels"` // open tunnels and WebSockets
	Seconds float64 `json:"seconds"` // after which the rest is aborted
}

// drain makes the proxy finish its requests and end, as the signal SIGTERM does. It does not wait for that.
func (h *Handler) drain(*http.Request) (any, error) { return h.options.Drain(), nil }

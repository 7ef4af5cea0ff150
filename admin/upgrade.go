package admin

import (
	"context"
	"net/http"
)

// Upgrade is the response body of /api/v1/upgrade.
type Upgrade struct {
	PID     int    `json:"pid"`     // of the process that accepts connections now
	Version string `json:"version"` // of its program
	OldPID  int    `json:"old_pid"` // of the process that ends when its requests have ended
}

// Upgrader replaces the process by a new one of the program that is installed, and returns when the new one accepts the
// connections. After an error the old process continues.
type Upgrader func(context.Context) (Upgrade, error)

// upgrade replaces the process. The client's departure does not stop it.
func (h *Handler) upgrade(r *http.Request) (any, error) {
	upgraded, err := h.options.Upgrade(context.WithoutCancel(r.Context()))
	if err != nil {
		return nil, &apiError{http.StatusConflict, err}
	}
	return upgraded, nil
}

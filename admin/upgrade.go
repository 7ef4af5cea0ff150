package admin

import "net/http"

// Upgrade is the response body of /api/v1/upgrade.
type Upgrade struct {
	PID     int    `json:"pid"`     // of the process that accepts connections now
	Version string `json:"version"` // of its program
	OldPID  int    `json:"old_pid"` // of the process that ends when its requests have ended
}

// Upgrader replaces the process by a new one of the program that is installed, and returns when the new one accepts the
// connections. After an error the old process continues.
type Upgrader func() (Upgrade, error)

// upgrade replaces the process, even if the client leaves.
func (h *Handler) upgrade(*http.Request) (any, error) {
	upgraded, err := h.options.Upgrade()
	if err != nil {
		return nil, &apiError{http.StatusConflict, err}
	}
	return upgraded, nil
}

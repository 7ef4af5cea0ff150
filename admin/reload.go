package admin

import (
	"net/http"
)

// Change is one change that a reload of the configuration has found.
type Change struct {
	Key     string `json:"key"`     // of the configuration, such as pacing.max_wait
	Text    string `json:"text"`    // one line, such as "pacing.max_wait: 150s -> 60s"
	Restart bool   `json:"restart"` // it has no effect before a restart
}

// Reloaded is the response body of /api/v1/reload.
type Reloaded struct {
	Changes []Change `json:"changes"`
}

// reload reads the configuration again. Its error says what is wrong with the configuration, which then has no effect.
func (h *Handler) reload(*http.Request) (any, error) {
	changes, err := h.options.Reload()
	if err != nil {
		return nil, &apiError{http.StatusUnprocessableEntity, err}
	}
	return Reloaded{append([]Change{}, changes...)}, nil
}

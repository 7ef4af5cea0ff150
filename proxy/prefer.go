package proxy

import (
	"net/http"
	"strconv"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/fields"
)

// maxWait returns how long ex may be held: what its client or the server is configured for, unless the request prefers
// less, or more up to the cap (Prefer: wait, RFC 7240 section 4.3).
func (ex *exchange) maxWait(h http.Header) time.Duration {
	configured := ex.server.options.MaxWait
	if ex.client.MaxWait != nil {
		configured = *ex.client.MaxWait
	}
	wait, ok := fields.PreferredWait(h)
	if !ok {
		return configured
	}
	wait = min(wait, max(configured, ex.server.options.MaxWaitCap))
	ex.preference = "wait=" + strconv.Itoa(int(wait/time.Second))
	return wait
}

package proxy

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxWait returns how long ex may be held: what its client or the server is configured for, unless the request prefers
// less, or more up to the cap (Prefer: wait, RFC 7240 section 4.3).
func (ex *exchange) maxWait(h http.Header) time.Duration {
	configured := ex.server.options.MaxWait
	if ex.client.MaxWait != nil {
		configured = *ex.client.MaxWait
	}
	wait, ok := preferredWait(h)
	if !ok {
		return configured
	}
	wait = min(wait, max(configured, ex.server.options.MaxWaitCap))
	ex.preference = "wait=" + strconv.Itoa(int(wait/time.Second))
	return wait
}

// preferredWait reads the first wait preference of whole seconds.
func preferredWait(h http.Header) (time.Duration, bool) {
	for _, v := range h["Prefer"] {
		for p := range strings.SplitSeq(v, ",") {
			p, _, _ = strings.Cut(p, ";")
			name, value, _ := strings.Cut(p, "=")
			if !strings.EqualFold(strings.TrimSpace(name), "wait") {
				continue
			}
			seconds, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 31)
			return time.Duration(seconds) * time.Second, err == nil
		}
	}
	return 0, false
}

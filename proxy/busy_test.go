package proxy

import (
	"fmt"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
)

// A client with too many waiting fetches of robots.txt gets Retry-After.
func TestBusyLookUp(t *testing.T) {
	for _, row := range []struct {
		err  error
		want time.Duration
	}{
		{robots.ErrBusy, retryOverload},
		{&robots.BusyError{RetryAfter: time.Millisecond}, retryOverload},
		{&robots.BusyError{RetryAfter: time.Minute}, time.Minute},
	} {
		ref := lookUpRefusal(&exchange{ctx: t.Context()}, fmt.Errorf("fetching: %w", row.err))
		if ref.Reason != policy.ReasonOverload || ref.RetryAfter != row.want {
			t.Errorf("of %v: %s, to come back after %v; want %s and %v", row.err, ref.Reason, ref.RetryAfter, policy.ReasonOverload, row.want)
		}
	}
}

package fetch

import (
	"context"
	"net/http/httptrace"
	"testing"
)

// A name server that does not answer may use up the time of the fetch as well as its own: it is the cause all the same.
func TestFailedLookUpIsNoConnecting(t *testing.T) {
	for _, row := range []struct {
		lookUp error
		want   string
	}{{context.DeadlineExceeded, "dns_timeout"}, {nil, "connection_timeout"}} {
		var p progress
		trace := httptrace.ContextClientTrace(p.watch(t.Context()))
		trace.DNSStart(httptrace.DNSStartInfo{})
		trace.DNSDone(httptrace.DNSDoneInfo{Err: row.lookUp})
		if got := ErrorType(p.explain(context.DeadlineExceeded)); got != row.want {
			t.Errorf("out of time after a look-up that ended with %v: %s, want %s", row.lookUp, got, row.want)
		}
	}
}

package proxy

import (
	"log/slog"
	"net/http"

	"github.com/robotsproxy/robotsproxy/policy"
)

const (
	maxStreams       = 100       // requests at a time on one HTTP/2 connection: the least that RFC 9113 section 6.5.2 recommends
	streamWindow     = 64 << 10  // bytes of one body that an HTTP/2 client may send before they are read
	connectionWindow = 256 << 10 // the same of all bodies of one connection
)

// requestQuotas returns how many requests there may be, and how many bytes they may hold, by the share of their client.
func (l Limits) requestQuotas(log *slog.Logger) (requests, memory *quota[string]) {
	requests = newQuota[string](log, "client", bound{most: l.Requests, key: "limits.requests"},
		bound{most: l.RequestsPerClient, key: "limits.requests_per_client"})
	memory = newQuota[string](log, "client", bound{most: l.RequestMemory, key: "limits.request_memory"},
		bound{most: l.RequestMemoryPerClient, key: "limits.request_memory_per_client"})
	return requests, memory
}

// reserve counts the request and the bytes that it holds, and refuses it if its client or all clients together would have
// too much. The caller must call unreserve at the end of the request, in either case.
func (ex *exchange) reserve(r *http.Request) *Refusal {
	if ex.place = ex.server.requests.take(ex.share, 1); ex.place == nil {
		return &Refusal{Reason: policy.ReasonOverload, Detail: "Too many requests wait or are being answered.", RetryAfter: retryOverload}
	}
	if ex.memory = ex.server.memory.take(ex.share, headerBytes(r)+bodyBytes(r)); ex.memory == nil {
		return &Refusal{Reason: policy.ReasonOverload, Detail: "The requests that wait or are being answered hold too much memory.", RetryAfter: retryOverload}
	}
	return nil
}

func (ex *exchange) unreserve() {
	if ex.place != nil {
		ex.place.leave()
	}
	if ex.memory != nil {
		ex.memory.leave()
	}
}

// headerBytes returns about how many bytes of r's header are held until r ends.
func headerBytes(r *http.Request) int {
	n := len(r.RequestURI) + len(r.Host)
	for name, values := range r.Header {
		for _, value := range values {
			n += len(name) + len(value)
		}
	}
	return n
}

// bodyBytes returns how many bytes of r's body are held at a time, at most. A small body is read before the request waits.
// Of another body net/http buffers streamWindow bytes over HTTP/2, and leaves it in the connection over HTTP/1.1.
func bodyBytes(r *http.Request) int {
	switch {
	case isSmallBody(r):
		return int(r.ContentLength)
	case r.ProtoMajor == 2 && r.ContentLength != 0:
		return streamWindow
	}
	return 0
}

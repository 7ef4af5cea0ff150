package proxy

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/auth"
	"github.com/robotsproxy/robotsproxy/internal/http1"
	"github.com/robotsproxy/robotsproxy/internal/limit"
)

// Limits cap the resources of a Server that clients hold at a time. The zero value caps nothing.
type Limits struct {
	Connections            int           // if zero, no limit
	ConnectionsPerClient   int           // from one address, or one /64 network of IPv6; if zero, no limit
	Tunnels                int           // if zero, no limit
	Requests               int           // that wait or are being answered; if zero, no limit
	RequestsPerClient      int           // the same of one client; if zero, no limit
	RequestMemory          int           // bytes for the headers and the buffered bodies of Requests; if zero, no limit
	RequestMemoryPerClient int           // the same of one client; if zero, no limit
	RequestTimeout         time.Duration // for a request and its answer, without its wait for the pace; if zero, no limit
}

// LimitListener returns a listener that takes at most limits.Connections connections from l at a time, and at most
// limits.ConnectionsPerClient from one address or one /64 network of IPv6. It answers further connections 503 with
// Retry-After and closes them. When it reaches a limit, it logs the key, connections or connections_per_client in
// section of the configuration, at most once a minute. It ignores the other fields of limits.
func LimitListener(l net.Listener, limits Limits, section string, log *slog.Logger) net.Listener {
	return limitListener(l, limits.connections(section, log), overloadResponse())
}

func limitListener(l net.Listener, conns *limit.Conns, answer []byte) net.Listener {
	return limit.NewListener(l, conns, clientNetwork, answer)
}

func (l Limits) connections(section string, log *slog.Logger) *limit.Conns {
	return limit.NewCounter[netip.Addr](log, "client_addr", limit.Bound{Max: l.Connections, Key: section + ".connections"},
		limit.Bound{Max: l.ConnectionsPerClient, Key: section + ".connections_per_client"})
}

func (l Limits) tunnels(log *slog.Logger) *limit.Conns {
	tunnels := limit.Bound{Max: l.Tunnels, Key: "limits.tunnels"}
	return limit.NewCounter[netip.Addr](log, "client_addr", tunnels, limit.Bound{})
}

// requests counts requests by Client.share.
func (l Limits) requests(log *slog.Logger) *limit.Counter[string] {
	return limit.NewCounter[string](log, "client", limit.Bound{Max: l.Requests, Key: "limits.requests"},
		limit.Bound{Max: l.RequestsPerClient, Key: "limits.requests_per_client"})
}

// memory counts the bytes that requests hold, by Client.share.
func (l Limits) memory(log *slog.Logger) *limit.Counter[string] {
	return limit.NewCounter[string](log, "client", limit.Bound{Max: l.RequestMemory, Key: "limits.request_memory"},
		limit.Bound{Max: l.RequestMemoryPerClient, Key: "limits.request_memory_per_client"})
}

// clientNetwork returns the address that stands for the client of a connection: its own, or the first of its IPv6
// network.
func clientNetwork(remote net.Addr) netip.Addr {
	ap, err := netip.ParseAddrPort(addrString(remote))
	if err != nil {
		return netip.Addr{}
	}
	return auth.Network(ap.Addr()).Addr()
}

// overloadResponse is the answer to a rejected connection. It has no request id, since nothing was read or recorded.
func overloadResponse() []byte {
	ref := overload("Too many connections are open.", nil)
	ref.complete(0)
	return wire(ref.response(nothingRead, ""))
}

const (
	maxStreams       = 100       // concurrent requests on one HTTP/2 connection: the minimum in RFC 9113 section 6.5.2
	streamWindow     = 64 << 10  // bytes of one body that an HTTP/2 client may send before the proxy reads them
	connectionWindow = 256 << 10 // the same of all bodies of one connection
)

// reserve counts the request and the bytes that it holds, and refuses it if that exceeds a limit. The caller must call
// unreserve at the end of the request, in either case.
func (ex *exchange) reserve(r *http.Request) *refusal {
	if ex.requests = ex.server.requests.Take(ex.share, 1); ex.requests == nil {
		return overload("Too many requests wait or are being answered.", nil)
	}
	if ex.memory = ex.server.memory.Take(ex.share, headerBytes(r)+bodyBytes(r)); ex.memory == nil {
		return overload("The requests that wait or are being answered hold too much memory.", nil)
	}
	return nil
}

func (ex *exchange) unreserve() {
	ex.requests.Release()
	ex.memory.Release()
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

// bodyBytes returns the most bytes of r's body that are held at a time. A small body is read before the request waits.
// Of another body net/http buffers streamWindow bytes in HTTP/2, and in HTTP/1.1 leaves it in the connection.
func bodyBytes(r *http.Request) int {
	switch {
	case isSmallBody(r):
		return int(r.ContentLength)
	case r.ProtoMajor == 2 && r.ContentLength != 0:
		return streamWindow
	}
	return 0
}

// maxSmallBody is the size up to which a request's body is read before the request waits.
const maxSmallBody = 64 << 10

// isSmallBody reports whether r's body is read before r waits.
func isSmallBody(r *http.Request) bool {
	return r.ContentLength > 0 && r.ContentLength <= maxSmallBody && r.Header.Get("Expect") == ""
}

// errTooLong ends a request that took longer than Limits.RequestTimeout.
var errTooLong = errors.New("the request took longer than limits.request_timeout")

// deadline ends an exchange that takes longer than Limits.RequestTimeout. It cancels the request's context, which ends
// waits for the origin, and sets deadlines on the connection, which end waits for the client. The methods of a nil
// deadline do nothing.
type deadline struct {
	ex    *exchange
	limit time.Duration

	mu    sync.Mutex // guards timer and over
	timer *time.Timer
	over  bool // the exchange has ended: the connection may serve another request
}

// startDeadline starts the deadline of ex, unless limit is zero. The caller must stop it when the exchange ends.
func (ex *exchange) startDeadline(limit time.Duration) {
	if limit == 0 {
		return
	}
	ex.deadline = &deadline{ex: ex, limit: limit}
	ex.deadline.timer = time.AfterFunc(limit, ex.deadline.expire)
}

// pause stops the timer while the request waits for the pace, which has its own limit.
func (d *deadline) pause() {
	if d != nil {
		d.timer.Stop()
	}
}

// restart starts the timer again, with the whole limit.
func (d *deadline) restart() {
	if d != nil {
		d.timer.Reset(d.limit)
	}
}

// expire ends the exchange. It leaves http1.LingerTime for a last answer to the client.
func (d *deadline) expire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		return
	}
	d.ex.cancel(errTooLong)
	client := http.NewResponseController(d.ex.response.ResponseWriter)
	_ = client.SetReadDeadline(time.Now())
	_ = client.SetWriteDeadline(time.Now().Add(http1.LingerTime))
}

func (d *deadline) stop() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	d.timer.Stop()
}

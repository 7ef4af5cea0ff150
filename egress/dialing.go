package egress

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"
	"time"
)

// dialing ends the dials of a request with the request. http.Transport itself goes on with them, so that another
// request can use the connection: for up to 10 s, and 10 s more with a TLS handshake. A client that asks for hosts that
// hang, and leaves at once, could then use up our descriptors.
type dialing struct {
	request context.Context
	secure  bool // TLS begins after the dial

	mu   sync.Mutex // guards the fields below
	open []net.Conn // whose handshakes are not done, as far as is known
	stop []func() bool
}

type dialingKey struct{}

// withDialing returns r with a context that ends its dials.
func withDialing(r *http.Request) *http.Request {
	d := &dialing{request: r.Context(), secure: r.URL.Scheme == "https"}
	ctx := d.request
	if d.secure {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{TLSHandshakeDone: d.handshakeDone})
	}
	return r.WithContext(context.WithValue(ctx, dialingKey{}, d))
}

// endWithRequest returns dial with its context and its connections bounded by the request that it is made for, until
// their TLS handshake is done.
func endWithRequest(dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		d, _ := ctx.Value(dialingKey{}).(*dialing)
		if d == nil {
			return dial(ctx, network, addr)
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(d.request, cancel)()
		conn, err := dial(ctx, network, addr)
		if err == nil && d.secure {
			d.closeWithRequest(conn)
		}
		return conn, err
	}
}

// closeWithRequest makes the handshake over conn fail when the request ends. It does not close conn: the handshake may
// have ended a moment ago, and then http.Transport gives conn to another request.
func (d *dialing) closeWithRequest(conn net.Conn) {
	stop := context.AfterFunc(d.request, func() { d.expire(conn) })
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open = append(d.open, conn)
	d.stop = append(d.stop, stop)
}

func (d *dialing) expire(conn net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.Contains(d.open, conn) {
		_ = conn.SetDeadline(time.Unix(1, 0))
	}
}

// handshakeDone leaves the connections of the request open when it ends. It does not know which of them it is called
// for. If there are several, the others end with the time-out of the handshake.
func (d *dialing) handshakeDone(tls.ConnectionState, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, stop := range d.stop {
		if !stop() {
			_ = d.open[i].SetDeadline(time.Time{})
		}
	}
	d.open, d.stop = nil, nil
}

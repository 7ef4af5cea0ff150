package robots

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
)

// Hop is one request of a fetch: the first one, or the one that a redirect leads to.
type Hop struct {
	For       origin.Origin // whose robots.txt is fetched
	Asker     Asker
	To        origin.Origin
	Target    string // path and query
	UserAgent string
	Until     time.Time // when the fetch must be over

	// Page says that a redirect leads to another host, and there to anything but exactly /robots.txt: it must be judged by
	// the rules of that host. A host may redirect its own /robots.txt within itself; another host may not redirect there.
	Page bool
}

// URL returns where h leads.
func (h Hop) URL() string { return h.To.String() + h.Target }

// RefusedError says that a redirect may not be followed. The file at its end is then unreachable.
type RefusedError struct {
	Why   string    // ends a sentence: "it redirects to URL, and ..."
	Until time.Time // when to ask again, if that is later than after other failures
}

func (e *RefusedError) Error() string { return e.Why }

// Visit is one request of a fetch that was admitted: see FetcherOptions.Admit.
type Visit interface {
	// Begin is called right before the request is sent, and returns when it may be. If it returns an error, which is as
	// those of Admit, the request is not sent.
	Begin(ctx context.Context) error

	// End is called once after each Begin that returned nil, when the request has ended. A request that net/http sends
	// again by itself ends, and begins anew.
	End(o Outcome)
}

// Outcome is what came of one request of a fetch.
type Outcome struct {
	Response *http.Response // nil: there was none. The body is closed.
	Header   time.Time      // when it came
	Bytes    int64          // of the body, as received
	Addr     net.Addr       // that the request was sent to; nil: it was sent to none
	Err      error          // why there is no response, or not the whole of it
}

// unseen is a Visit if there is no Admit.
type unseen struct{}

func (unseen) Begin(context.Context) error { return nil }
func (unseen) End(Outcome)                 {}

// sending is one request on its way.
type sending struct {
	visit   Visit
	cancel  context.CancelFunc
	begun   bool        // and has not ended
	wrote   atomic.Bool // its header was written to the connection
	err     error       // why it may not be sent again
	outcome Outcome
}

// send makes a request with these fields, and returns the response. The visit ends when the response's body is closed.
func (f *Fetcher) send(ctx context.Context, v Visit, at string, h http.Header) (*http.Response, error) {
	if err := v.Begin(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &sending{visit: v, begun: true, cancel: cancel}
	resp, err := f.get(s.watch(ctx), at, h)
	s.outcome.Header = time.Now()
	if s.err != nil {
		err = s.err
	}
	if err != nil {
		s.end(err)
		return nil, err
	}
	s.outcome.Response, resp.Body = resp, &visitBody{ReadCloser: resp.Body, sending: s}
	return resp, nil
}

func (s *sending) end(err error) {
	s.cancel()
	if s.begun {
		s.begun, s.outcome.Err = false, err
		s.visit.End(s.outcome)
	}
}

// visitBody is the body of a response, whose end is that of the visit.
type visitBody struct {
	io.ReadCloser
	sending *sending
	err     error // of reading
}

func (b *visitBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.sending.outcome.Bytes += int64(n)
	if err != io.EOF {
		b.err = err
	}
	return n, err
}

func (b *visitBody) Close() error {
	err := b.ReadCloser.Close()
	b.sending.end(b.err)
	return err
}

func (s *sending) watch(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:      func(info httptrace.GotConnInfo) { s.gotConn(ctx, info.Conn) },
		WroteHeaders: func() { s.wrote.Store(true) },
	})
}

var errSentAgain = errors.New("the connection broke before an answer; the request was sent again")

// gotConn is called before the request is written to conn. If it was written to another connection before, net/http sends
// it again by itself (RFC 9110 section 9.2.2): a second request to the origin.
func (s *sending) gotConn(ctx context.Context, conn net.Conn) {
	if s.wrote.Swap(false) {
		s.visit.End(Outcome{Addr: s.outcome.Addr, Err: errSentAgain})
		if s.err = s.visit.Begin(ctx); s.err != nil {
			s.begun = false
			s.cancel()
			closeUnshared(conn)
			return
		}
	}
	s.outcome.Addr = conn.RemoteAddr()
}

// closeUnshared closes a connection of HTTP/1.1: net/http would write the request to it although its context has ended.
// One of HTTP/2, which others use as well, is written to only after a look at the context.
func closeUnshared(conn net.Conn) {
	if c, ok := conn.(*tls.Conn); ok && c.ConnectionState().NegotiatedProtocol == "h2" {
		return
	}
	conn.Close()
}

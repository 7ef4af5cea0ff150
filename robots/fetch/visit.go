package fetch

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

// Hop is one request of a fetch: the first, or that for the target of a redirect.
type Hop struct {
	For       origin.Origin // whose robots.txt is fetched
	Asker     Asker
	To        origin.Origin
	Target    string // path and query
	UserAgent string
	Until     time.Time // when the fetch times out

	// Page says that a redirect leads to another host, and there to a path other than /robots.txt. The rules of that
	// host decide whether the page may be requested. The redirects of a host within itself are not pages, unless
	// another host redirected there.
	Page bool
}

// URL returns the URL of the request.
func (h Hop) URL() string { return h.To.String() + h.Target }

// RefusedError says that a redirect may not be followed. The file is then unreachable.
type RefusedError struct {
	Why   string    // completes "it redirects to URL, and ..."
	Until time.Time // when to fetch again; a failure is kept until Options.ErrorTTL has passed at least
}

func (e *RefusedError) Error() string { return e.Why }

// Visit is an admitted request of a fetch: see Options.Admit.
type Visit interface {
	// Begin waits until the request may be sent, and may add fields to its header. If it returns an error, of the kinds
	// that Admit returns, the request is not sent. If net/http repeats a request, the header cannot change, and is nil.
	Begin(ctx context.Context, h http.Header) error

	// End is called once after each Begin that returned nil, when the request has ended. If net/http repeats a request,
	// the Visit ends and begins again.
	End(o Outcome)
}

// Outcome is the result of one request of a fetch.
type Outcome struct {
	Response *http.Response // with its body closed; nil if there was none
	Header   time.Time      // when the header came
	Bytes    int64          // length of the body, before decoding
	Addr     net.Addr       // the address of the connection; nil if there was none
	Err      error          // why there is no response, or not all of it
}

// noVisit is the Visit of each request if Options.Admit is nil.
type noVisit struct{}

func (noVisit) Begin(context.Context, http.Header) error { return nil }
func (noVisit) End(Outcome)                              {}

// sending is a request under way.
type sending struct {
	visit   Visit
	cancel  context.CancelFunc
	begun   bool        // visit has begun and not ended
	wrote   atomic.Bool // the header was written to the connection
	err     error       // of a second Begin
	outcome Outcome
}

// send sends a request with the fields h and returns the response. The visit ends when its body is closed.
func (f *Fetcher) send(ctx context.Context, v Visit, url string, h http.Header) (*http.Response, error) {
	if err := v.Begin(ctx, h); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &sending{visit: v, begun: true, cancel: cancel}
	resp, err := f.get(s.watch(ctx), url, h)
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

func (f *Fetcher) get(ctx context.Context, url string, h http.Header) (*http.Response, error) {
	var progress progress
	req, err := http.NewRequestWithContext(progress.watch(ctx), http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header = h
	resp, err := f.options.Transport.RoundTrip(req)
	if err != nil {
		return nil, progress.explain(err)
	}
	return resp, nil
}

func (s *sending) end(err error) {
	s.cancel()
	if s.begun {
		s.begun, s.outcome.Err = false, err
		s.visit.End(s.outcome)
	}
}

// visitBody is the body of a response. Its Close ends the visit.
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

// gotConn is called before the request is written to conn. net/http repeats a request on another connection if the
// first one breaks (RFC 9110 section 9.2.2). For the origin that is a second request, so it needs a second Begin.
func (s *sending) gotConn(ctx context.Context, conn net.Conn) {
	if s.wrote.Swap(false) {
		s.visit.End(Outcome{Addr: s.outcome.Addr, Err: errSentAgain})
		if s.err = s.visit.Begin(ctx, nil); s.err != nil {
			s.begun = false
			s.cancel()
			closeUnshared(conn)
			return
		}
	}
	s.outcome.Addr = conn.RemoteAddr()
}

// closeUnshared closes a connection of HTTP/1.1, since net/http writes the request to it although the context has
// ended. It leaves one of HTTP/2, which carries other requests too: there net/http looks at the context first.
func closeUnshared(conn net.Conn) {
	if c, ok := conn.(*tls.Conn); ok && c.ConnectionState().NegotiatedProtocol == "h2" {
		return
	}
	conn.Close()
}

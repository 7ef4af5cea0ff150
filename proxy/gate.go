package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
)

// gate is a client's connection on its way to net/http, which gets to read nothing but sound requests. The octets pass as
// they are; behind the last sound one the connection ends, with an answer that says why, and nothing of the broken request
// reaches an origin. Where a body turns out broken while its request is served, reading it fails, which ends the request.
//
// A CONNECT and an accepted upgrade end the gate's work: what follows is another protocol. HTTP/2 has frames and no gate.
type gate struct {
	net.Conn
	server *Server
	tunnel *tunnel // nil: outside a tunnel

	framing framing // belongs to who reads, as the next does; net/http has one reader at a time
	told    bool    // the client was, that its request is malformed
	open    atomic.Bool
	busy    atomic.Bool  // a request is being served
	begun   atomic.Int64 // which, counted from the first
	heard   atomic.Bool  // a handler has heard of it
	fault   atomic.Pointer[malformed]

	mu      sync.Mutex   // held while something is written
	writes  atomic.Int64 // of the final answer, since the request began
	expired atomic.Bool  // the deadline of reading has passed already
	spent   atomic.Bool  // the rest of a request is nobody's, and no other may begin in it

	waits    sync.Mutex // guards what follows
	deadline time.Time  // of reading
	moved    bool       // to there, which Conn has not been told
}

// secureGate is a gate behind TLS that was begun. net/http asks it for the state that it finds in a tls.Conn itself.
type secureGate struct {
	*gate
	tls *tls.Conn
}

func (g secureGate) ConnectionState() tls.ConnectionState { return g.tls.ConnectionState() }

func (s *Server) newGate(c net.Conn) *gate { return &gate{Conn: c, server: s} }

// newInnerGate returns the gate of a tunnel through which requests for o come.
func (s *Server) newInnerGate(c net.Conn, t *tunnel, o origin.Origin) *gate {
	agrees := func(host string) error { return checkHost(host, o) }
	return &gate{Conn: c, server: s, tunnel: t, framing: framing{checkHost: agrees}}
}

// Read reads sound octets.
func (g *gate) Read(p []byte) (int, error) {
	if g.spent.Load() {
		return 0, errRefused
	}
	if err := g.tellDeadline(); err != nil {
		return 0, err
	}
	if m := g.fault.Load(); m != nil {
		return 0, g.fail(m)
	}
	n, err := g.Conn.Read(p)
	if g.open.Load() { // looked at behind Read: the connection may have been opened meanwhile
		return n, err
	}
	if err == io.EOF && n == 0 && g.busy.Load() && g.framing.phase == blank {
		return 0, g.halfClosed()
	}
	sound, m := g.framing.scan(p[:n])
	if m == nil {
		return n, err
	}
	g.fault.Store(m)
	if sound > 0 {
		return sound, nil
	}
	return 0, g.fail(m)
}

// errRefused is what net/http gets to see where no more is to be read. It answers nothing to an error of reading.
var errRefused = &net.OpError{Op: "read", Net: "tcp", Err: errors.New("what follows is no request, or nobody's")}

// fail is what comes behind the last sound octet. Who reads on there is told by where the fault is, and whether a request
// is being served.
func (g *gate) fail(m *malformed) error {
	switch {
	case g.open.Load():
		return errRefused // what came before the other protocol was accepted; an answer would stand amid it
	case g.brokenBody() != nil:
		return m // the handler answers
	case g.busy.Load():
		return g.watch()
	case g.told:
		return errRefused // net/http takes half a line before an error for a line, and reads on
	}
	g.told = true
	g.server.refuseMalformed(g, m)
	linger(g.Conn)
	return errRefused
}

// watch waits for the client to leave, or for net/http to have answered the request before the broken one: it reads a
// connection meanwhile only to know that. What comes is lost already.
func (g *gate) watch() error {
	if _, err := io.Copy(io.Discard, g.Conn); err != nil {
		return err
	}
	return g.halfClosed()
}

// spend ends what net/http reads, amid a request.
func (g *gate) spend() {
	if g == nil {
		return
	}
	g.spent.Store(true)
	_ = g.SetReadDeadline(time.Unix(1, 0)) // for a read under way
}

// CloseWrite ends the sending side. net/http does so before it closes a connection whose client may be sending still, and
// then waits without reading.
func (g *gate) CloseWrite() error {
	if g.spent.Load() {
		linger(g.Conn)
		return nil
	}
	return closeWrite(g.Conn)
}

// pass lets everything through from now on.
func (g *gate) pass() {
	if g != nil {
		g.open.Store(true)
	}
}

// settle ends a connection whose request had a broken body, when it has been answered.
func (g *gate) settle(w http.ResponseWriter) {
	if g == nil || g.brokenBody() == nil {
		return
	}
	_ = http.NewResponseController(w).Flush() // a client that left needs no answer
	linger(g.Conn)
}

// brokenBody returns what was wrong with the body of the request that is served; nil where nothing is, or no gate.
func (g *gate) brokenBody() *malformed {
	if g == nil {
		return nil
	}
	if m := g.fault.Load(); m != nil && m.body > 0 && m.body == g.begun.Load() {
		return m
	}
	return nil // it may be in a request behind this one
}

// refuseMalformed answers octets that are no request, in the contract of every refusal, and records them.
func (s *Server) refuseMalformed(g *gate, m *malformed) {
	s.handlers.begin()
	defer s.handlers.end()
	r := &http.Request{RemoteAddr: g.RemoteAddr().String(), Header: http.Header{}}
	ex := s.newExchange(nil, r, g.tunnel)
	ex.identify(r)
	if t := g.tunnel; t != nil {
		ex.rec.Host, ex.rec.Port = t.host, t.port
	}
	resp := ex.refuse(r, malformedRefusal(m))
	resp.Close = true
	if g.SetWriteDeadline(time.Now().Add(lingering)) == nil {
		_ = resp.Write(g.Conn) // the refusal is recorded whether or not it is read
	}
}

// unheard is called for what net/http answers by itself, before a handler has heard of the request: the framing is sound,
// and it takes the target for no URL, Host for no host, or knows no such expectation. The client gets a refusal of ours in
// its place.
func (g *gate) unheard(own []byte) {
	if g.told {
		return
	}
	g.told = true
	g.server.refuseMalformed(g, inOurWords(own))
	linger(g.Conn)
}

// inOurWords reads what net/http answers: a status, and sometimes why.
func inOurWords(own []byte) *malformed {
	status, why, _ := bytes.Cut(own, []byte("\r\n"))
	switch {
	case bytes.Contains(status, []byte(" 417 ")):
		return &malformed{status: http.StatusExpectationFailed, why: "expect is not 100-continue (RFC 9110 section 10.1.1)"}
	case bytes.HasSuffix(why, []byte("malformed Host header")):
		return bad("host is no host with or without a port (section 3.2)")
	}
	return bad("the target is no URL (RFC 3986: two hexadecimal digits follow each %%), or trailer names a field that belongs in a header")
}

func malformedRefusal(m *malformed) *Refusal {
	if m.target != nil {
		return targetRefusal(m.target)
	}
	return &Refusal{Reason: policy.ReasonBadRequest, Status: m.status, Detail: "This is no sound HTTP/1.1 request (RFC 9112): " + m.why + ".", Err: m}
}

// gateListener puts a gate in front of every connection.
type gateListener struct {
	net.Listener
	server *Server
}

func (l gateListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.server.newGate(c), nil
}

// gateOf returns the gate that net/http reads c through; nil where it has none.
func gateOf(c net.Conn) *gate {
	switch c := c.(type) {
	case *gate:
		return c
	case secureGate:
		return c.gate
	}
	return nil
}

// noteState is told by net/http when a request begins and ends.
func noteState(c net.Conn, state http.ConnState) {
	if g := gateOf(c); g != nil {
		g.busy.Store(state == http.StateActive)
		if state == http.StateIdle { // the answer was written
			g.heard.Store(false)
		}
		if state == http.StateActive {
			g.begun.Add(1)
			g.writes.Store(0)
		}
	}
}

// hearing tells the gate of each request that it has come to a handler.
func hearing(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if g := gateIn(r.Context()); g != nil {
			g.heard.Store(true)
		}
		h(w, r)
	}
}

type gateKey struct{}

// gateContext tells requests which gate they came through.
func gateContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, gateKey{}, gateOf(c))
}

func gateIn(ctx context.Context) *gate {
	g, _ := ctx.Value(gateKey{}).(*gate)
	return g
}

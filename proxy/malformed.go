package proxy

import (
	"net"
	"net/http"

	"github.com/robotsproxy/robotsproxy/internal/http1"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
)

// http1Options returns the options of connections outside tunnels.
func (s *Server) http1Options() http1.Options {
	return http1.Options{Refuse: func(c net.Conn, e *http1.SyntaxError) { s.refuseMalformed(c, nil, e) }}
}

// newInnerConn returns the connection inside t, over which requests for o come.
func (s *Server) newInnerConn(c net.Conn, t *tunnel, o origin.Origin) net.Conn {
	return http1.New(c, http1.Options{
		Refuse:    func(c net.Conn, e *http1.SyntaxError) { s.refuseMalformed(c, t, e) },
		CheckHost: func(host string) error { return checkHost(host, o) },
	})
}

// refuseMalformed answers bytes on c that are not a request, with a record.
func (s *Server) refuseMalformed(c net.Conn, t *tunnel, e *http1.SyntaxError) {
	if !s.handlers.begin() {
		return
	}
	defer s.handlers.end()
	r := &http.Request{RemoteAddr: c.RemoteAddr().String(), Header: http.Header{}}
	ex := s.newExchange(nil, r, t)
	ex.identify(r)
	if t != nil {
		ex.rec.Host, ex.rec.Port = t.host, t.port
	}
	ex.response.conn = c
	ex.answer(r, malformedRefusal(e))
}

func malformedRefusal(e *http1.SyntaxError) *Refusal {
	if e.Err != nil {
		return targetRefusal(e.Err)
	}
	return &Refusal{Reason: policy.ReasonBadRequest, Status: e.Status, Detail: "This is not a well-formed HTTP/1.1 request (RFC 9112): " + e.Error() + ".", Err: e}
}

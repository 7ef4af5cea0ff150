package proxy

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/robotsproxy/robotsproxy/auth"
	"github.com/robotsproxy/robotsproxy/internal/http1"
	"github.com/robotsproxy/robotsproxy/policy"
)

// Client is a client of the proxy, and how its requests are treated. Its user, its addresses, or both identify it.
type Client struct {
	policy.Client
	User     string         // if empty, any user, or no credentials
	Prefixes []netip.Prefix // of its addresses; if empty, all
	MaxWait  *time.Duration // the longest wait of its requests; if nil, the Server's
	Pages    bool           // requests for the parts of its pages ask for a place without a Delay: see isSubresource
	Purpose  string         // for the records of its requests
}

// matches reports whether c is the client that comes from addr as user. An empty user means that it sent no
// credentials.
func (c *Client) matches(user string, addr netip.Addr) bool {
	contains := func(p netip.Prefix) bool { return p.Contains(addr) }
	if c.User == "" && len(c.Prefixes) == 0 {
		return false // a Client without both must not match every request
	}
	return (c.User == "" || c.User == user) && (len(c.Prefixes) == 0 || slices.ContainsFunc(c.Prefixes, contains))
}

// local is the client of every request if no clients are listed.
var local = &Client{Client: policy.Client{Name: "local"}}

// share returns the name by which queues, limits and fetches are shared fairly between clients: that of c, or, if no
// clients are listed, the network of the remote address. It does not depend on fields that a client can choose, such as
// User-Agent.
func (c *Client) share(remote string) string {
	if c != local {
		if c == nil {
			return ""
		}
		return c.Name
	}
	from, err := netip.ParseAddrPort(remote)
	if err != nil {
		return c.Name
	}
	return auth.Network(from.Addr()).Addr().String()
}

// clientsByUser returns the clients to use if none are listed: one for each user, with the user's name.
func clientsByUser(users *auth.Users) map[string]*Client {
	clients := make(map[string]*Client)
	if users != nil {
		for name := range users.Names() {
			clients[name] = &Client{Client: policy.Client{Name: name}, User: name}
		}
	}
	return clients
}

// identify returns the client that sends r: the first that matches, or, if no clients are listed, the user or local. It
// returns nil for an unknown client. It refuses wrong credentials, and asks an unknown client without credentials for
// them.
func (s *Server) identify(r *http.Request) (*Client, *refusal) {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return nil, nil
	}
	addr := from.Addr().WithZone("").Unmap()
	user, ref := s.authenticate(r, addr)
	if ref != nil {
		return nil, ref
	}
	if c := s.match(user, addr); c != nil {
		return c, nil
	}
	if user == "" && s.options.Users != nil {
		return nil, authRefusal(errNoCredentials)
	}
	return nil, nil
}

func (s *Server) match(user string, addr netip.Addr) *Client {
	if len(s.options.Clients) == 0 {
		if user == "" {
			return local
		}
		return s.byUser[user]
	}
	for i := range s.options.Clients {
		if c := &s.options.Clients[i]; c.matches(user, addr) {
			return c
		}
	}
	return nil
}

var (
	errNoCredentials  = errors.New("no credentials were sent")
	errBadCredentials = errors.New("the credentials are not Basic ones (RFC 7617)")
)

// authenticate returns the user in the credentials of r, or "" if r has no credentials and does not need any. Without
// configured users it ignores Proxy-Authorization, which is never forwarded.
func (s *Server) authenticate(r *http.Request, addr netip.Addr) (user string, _ *refusal) {
	field := r.Header["Proxy-Authorization"]
	switch {
	case s.options.Users == nil:
		return "", nil
	case len(field) == 0 && s.options.AuthRequired:
		return "", authRefusal(errNoCredentials)
	case len(field) == 0:
		return "", nil
	}
	user, password, ok := basic(field)
	if !ok {
		return "", authRefusal(errBadCredentials)
	}
	if err := s.options.Users.Check(r.Context(), addr, user, password); err != nil {
		return "", authRefusal(err)
	}
	return user, nil
}

// basic reads the one value of a Proxy-Authorization field as net/http reads that of Authorization.
func basic(field []string) (user, password string, ok bool) {
	if len(field) != 1 {
		return "", "", false
	}
	return (&http.Request{Header: http.Header{"Authorization": field}}).BasicAuth()
}

// requester is the sender of a request. It does not change after identify.
type requester struct {
	client *Client     // nil if unknown
	denied *refusal    // of credentials; nil if they are right or were not checked
	share  string      // see Client.share
	tunnel *tunnel     // nil outside tunnels
	conn   *http1.Conn // nil for HTTP/2
	http10 bool        // the client speaks HTTP/1.0
}

// identify finds the client that sent r. Inside a tunnel it is the client that opened the tunnel.
func (ex *exchange) identify(r *http.Request) {
	if t := ex.tunnel; t != nil {
		ex.client, ex.share = t.client, t.share
	} else {
		ex.client, ex.denied = ex.server.identify(r)
		ex.share = ex.client.share(r.RemoteAddr)
	}
	if ex.client != nil {
		ex.rec.Client, ex.rec.Purpose = ex.client.Name, ex.client.Purpose
	}
}

// unknownClient returns the refusal for an unknown client.
func (r *requester) unknownClient() *refusal {
	if r.denied != nil {
		return r.denied
	}
	return &refusal{Reason: policy.ReasonIdentity, Detail: "Neither your address nor your user is among the clients of this proxy."}
}

package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/robotsproxy/robotsproxy/auth"
	"github.com/robotsproxy/robotsproxy/internal/http1"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/sign"
)

// Client is a client of the proxy, and how its requests are treated. Its user, its addresses and the subject of its
// certificate identify it, or some of them.
type Client struct {
	policy.Client
	User     string         // if empty, any user, or no credentials
	Subject  string         // of its certificate, as auth.Subject returns it; if empty, any, or no certificate
	Prefixes []netip.Prefix // of its addresses; if empty, all
	MaxWait  *time.Duration // the longest wait of its requests; if nil, the Server's
	Pages    bool           // requests for the parts of its pages ask for a place without a Delay: see isSubresource

	// Signer signs its requests. If nil, Options.Signer does. One without an agent signs none: see sign.None.
	Signer *sign.Signer

	// UserAgent replaces the User-Agent of its requests, outside and inside tunnels that are decrypted, before they are
	// judged. If empty, Options.UserAgent does.
	UserAgent string
}

// matches reports whether c is the client with the given identity.
func (c *Client) matches(id identity) bool {
	contains := func(p netip.Prefix) bool { return p.Contains(id.addr) }
	if c.User == "" && c.Subject == "" && len(c.Prefixes) == 0 {
		return false // a Client without any must not match every request
	}
	return (c.User == "" || c.User == id.user) && (c.Subject == "" || c.Subject == id.subject) &&
		(len(c.Prefixes) == 0 || slices.ContainsFunc(c.Prefixes, contains))
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

// identity is what a connection has shown of its sender.
type identity struct {
	user    string     // whose password it knows; empty if it sent no credentials
	subject string     // of its certificate; empty if it sent none
	addr    netip.Addr // without a zone; zero if unknown
}

// identify returns the identity and the client of the sender of r: the first client that matches, or, if no clients are
// listed, the user or local. The client is nil if it is unknown. It refuses wrong credentials, and asks an unknown client
// without credentials for them.
func (s *settings) identify(r *http.Request) (identity, *Client, *refusal) {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return identity{}, nil, nil
	}
	id := identity{subject: subjectOf(r.Context()), addr: from.Addr().WithZone("").Unmap()}
	var ref *refusal
	if id.user, ref = s.authenticate(r, id.addr); ref != nil {
		return id, nil, ref
	}
	if c := s.match(id); c != nil {
		return id, c, nil
	}
	if id.user == "" && s.Users != nil {
		return id, nil, authRefusal(errNoCredentials)
	}
	return id, nil, nil
}

func (s *settings) match(id identity) *Client {
	if len(s.Clients) == 0 {
		if id.user == "" {
			return local
		}
		return s.byUser[id.user]
	}
	for i := range s.Clients {
		if c := &s.Clients[i]; c.matches(id) {
			return c
		}
	}
	return nil
}

// matchAgain returns the client of an identity that was found by other settings. It is nil if the user has been removed,
// or if credentials are required since.
func (s *settings) matchAgain(id identity) *Client {
	switch {
	case s.Users == nil:
		id.user = ""
	case id.user == "" && s.AuthRequired, id.user != "" && !s.Users.Has(id.user):
		return nil
	}
	if !id.addr.IsValid() {
		return nil
	}
	return s.match(id)
}

var (
	errNoCredentials  = errors.New("no credentials were sent")
	errBadCredentials = errors.New("the credentials are not Basic ones (RFC 7617)")
)

// authenticate returns the user in the credentials of r, or "" if r has no credentials and does not need any. Without
// configured users it ignores Proxy-Authorization, which is never forwarded.
func (s *settings) authenticate(r *http.Request, addr netip.Addr) (user string, _ *refusal) {
	field := r.Header["Proxy-Authorization"]
	switch {
	case s.Users == nil:
		return "", nil
	case len(field) == 0 && s.AuthRequired:
		return "", authRefusal(errNoCredentials)
	case len(field) == 0:
		return "", nil
	}
	user, password, ok := basic(field)
	if !ok {
		return "", authRefusal(errBadCredentials)
	}
	if err := s.Users.Check(r.Context(), addr, user, password); err != nil {
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

// requester is the sender of a request. It changes after identify only if the settings have changed.
type requester struct {
	identity
	client *Client     // nil if unknown
	denied *refusal    // of credentials; nil if they are right or were not checked
	share  string      // see Client.share
	tunnel *tunnel     // nil outside tunnels
	conn   *http1.Conn // nil for HTTP/2
	http10 bool        // the client speaks HTTP/1.0
}

// identify finds the client that sent r. Inside a tunnel it is the client that opened the tunnel, or, if the settings
// have changed since, the one that would open it now.
func (ex *exchange) identify(r *http.Request) {
	switch t := ex.tunnel; {
	case t == nil:
		ex.identity, ex.client, ex.denied = ex.settings.identify(r)
		ex.logRejected(r)
		ex.share = ex.client.share(r.RemoteAddr)
	case t.version == ex.settings.version:
		ex.identity, ex.client, ex.share = t.identity, t.client, t.share
	default:
		ex.identity, ex.client = t.identity, ex.settings.matchAgain(t.identity)
		ex.share = ex.client.share(r.RemoteAddr)
	}
	ex.noteClient()
}

// logRejected logs that the credentials of r are wrong. One line a minute is for each user and network.
func (ex *exchange) logRejected(r *http.Request) {
	var rejected *auth.RejectedError
	if ex.denied == nil || !errors.As(ex.denied.Err, &rejected) {
		return
	}
	user, _, _ := basic(r.Header["Proxy-Authorization"])
	user = cut(user, 64)
	if unlogged, due := ex.server.faults.due(ex.addr, "password of "+user); due {
		ex.server.log.Warn("a password is refused", "user", user, "client_addr", r.RemoteAddr,
			"failures", rejected.Failures, "not_logged", unlogged)
	}
}

// outgoingAgent returns the User-Agent that replaces that of the client, or "".
func (ex *exchange) outgoingAgent() string {
	if ex.client != nil && ex.client.UserAgent != "" {
		return ex.client.UserAgent
	}
	return ex.settings.UserAgent
}

// noteClient records the client.
func (ex *exchange) noteClient() {
	if ex.client != nil {
		ex.rec.Client, ex.rec.Purpose = ex.client.Name, string(ex.client.Purpose)
	}
}

// adopt replaces the settings of a request that has waited, if they have changed since it began, and finds its client
// among the new ones. It keeps the share, by which the request has waited. It reports whether there is such a client.
func (ex *exchange) adopt(s *settings) bool {
	if s == ex.settings {
		return true
	}
	ex.settings, ex.client = s, s.matchAgain(ex.identity)
	if ex.client == nil {
		return false
	}
	ex.noteClient()
	ex.judged.request.Client = ex.client.Client
	return true
}

// unknownClient returns the refusal for an unknown client.
func (r *requester) unknownClient() *refusal {
	if r.denied != nil {
		return r.denied
	}
	ref := &refusal{Reason: policy.ReasonIdentity, Detail: "Neither your address nor your user is among the clients of this proxy."}
	if r.subject != "" {
		ref.Err = fmt.Errorf("the subject of the client's certificate is %q", r.subject)
		ref.Detail = "Neither your address nor your user, nor the subject of your certificate, " + r.subject +
			", is among the clients of this proxy."
	}
	return ref
}

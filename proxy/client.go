package proxy

import (
	"net/netip"
	"time"

	"github.com/robotsproxy/robotsproxy/policy"
)

// Client is who may use the proxy, and how its requests are treated.
type Client struct {
	policy.Client
	Prefixes []netip.Prefix // addresses it comes from
	MaxWait  *time.Duration // how long its requests may be held; if nil, the server's
	Pages    bool           // what its pages are made of shares their slot: for browsers, which say what that is
	Purpose  string         // what its requests are recorded as being for
}

// local is everybody on this machine, where nobody is listed.
var local = &Client{Client: policy.Client{Name: "local"}}

// identify returns who asks from addr: the first client whose prefixes hold it, "local" where none is listed, and nil
// for a stranger.
func (s *Server) identify(addr string) *Client {
	if len(s.options.Clients) == 0 {
		return local
	}
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil
	}
	for i := range s.options.Clients {
		if contains(s.options.Clients[i].Prefixes, ap.Addr().Unmap()) {
			return &s.options.Clients[i]
		}
	}
	return nil
}

package proxy

import (
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// keptFields may not be removed by naming them in Connection: they belong to the message.
var keptFields = []string{"Host", "Content-Length", "Via", "Cache-Control", "Proxy-Status"}

const ownPrefix = "Robotsproxy-"

// isHopField reports whether a field holds for one connection only (RFC 9110 section 7.6.1), in both directions.
func isHopField(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// isOwnField reports whether a field is one of our own control fields, which nobody else may set.
func isOwnField(name string) bool { return strings.HasPrefix(name, ownPrefix) }

// cleanHeader removes from h what holds for the connection that h came by, what its sender says holds for it, and what is
// ours. WebSocket's upgrade is kept where it is asked for: it is forwarded as a request for the same upgrade.
func cleanHeader(h http.Header, webSocket bool) {
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			name = textproto.CanonicalMIMEHeaderKey(textproto.TrimString(name))
			if !slices.Contains(keptFields, name) {
				delete(h, name)
			}
		}
	}
	for name := range h {
		if isHopField(name) || isOwnField(name) {
			delete(h, name)
		}
	}
	if webSocket {
		h["Connection"], h["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
	}
}

// asksTrailers reports whether a client wants trailers. Its TE is its connection's own (RFC 9110 section 10.1.4), but gRPC
// asks the origin for them that way, and our transport keeps them.
func asksTrailers(h http.Header) bool { return httpguts.HeaderValuesContainsToken(h["Te"], "trailers") }

// asksWebSocket reports whether h is one side of WebSocket's handshake (RFC 6455 section 4). Every other upgrade is not
// offered to the origin: nothing behind it could be judged.
func asksWebSocket(h http.Header) bool {
	return httpguts.HeaderValuesContainsToken(h["Connection"], "upgrade") &&
		httpguts.HeaderValuesContainsToken(h["Upgrade"], "websocket")
}

// dropPathFields removes the fields that some servers take a request's path from (IIS, Symfony), whatever its target is:
// that path was not judged.
func dropPathFields(h http.Header) {
	for name := range h {
		if readsAs(name, "x-original-url") || readsAs(name, "x-rewrite-url") {
			delete(h, name)
		}
	}
}

// readsAs reports whether a server may read name as field, which is in lower case. Servers that map fields to variables,
// as CGI does, take "_" for "-", and some of them every other byte that is no letter or digit.
func readsAs(name, field string) bool {
	if len(name) != len(field) {
		return false
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		case !('a' <= c && c <= 'z' || '0' <= c && c <= '9'):
			c = '-'
		}
		if c != field[i] {
			return false
		}
	}
	return true
}

// cleanTrailer removes from trailers what is ours, and what may stand in a header only (RFC 9110 section 6.5.1): who merges
// them would read the message otherwise than it came.
func cleanTrailer(trailer http.Header) {
	for name := range trailer {
		if isOwnField(name) || !httpguts.ValidTrailerHeader(name) {
			delete(trailer, name)
		}
	}
	dropOwnStatus(trailer)
}

// trailedBody is a request's body with trailers behind it.
type trailedBody struct {
	io.ReadCloser
	trailer http.Header // net/http fills it at the end
	sent    http.Header // the transport's own: net/http may be ahead of it
}

func (b trailedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		maps.Copy(b.sent, b.trailer)
		cleanTrailer(b.sent)
		dropPathFields(b.sent)
	}
	return n, err
}

// Package fields reads and cleans the header fields that an intermediary must not pass on as they are (RFC 9110 section
// 7.6): fields of one connection, authentication of a connection, Proxy-Status, the handshake of a WebSocket,
// Retry-After and RateLimit, Accept and Prefer.
//
//	webSocket := fields.WantsWebSocket(r.Header)
//	fields.CleanHeader(r.Header, webSocket)
//	fields.DropPathFields(r.Header)
//
// It knows nothing of robots.txt, and decides nothing: its callers refuse a request or drop an answer.
package fields

import (
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// OwnPrefix begins the names of the proxy's own fields. Neither a client nor an origin can set one.
const OwnPrefix = "Robotsproxy-"

// keptFields belong to the message and not to the connection: naming one in Connection does not remove it.
var keptFields = []string{"Host", "Content-Length", "Via", "Cache-Control", "Proxy-Status"}

// isHopField reports whether a field of a request or a response is for one connection only (RFC 9110 section 7.6.1).
func isHopField(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

func isOwnField(name string) bool { return strings.HasPrefix(name, OwnPrefix) }

// CleanHeader removes from h the fields of the connection that h came by, the fields that Connection names, and the
// proxy's own fields. If webSocket is true, it asks for an upgrade to a WebSocket on the next connection.
func CleanHeader(h http.Header, webSocket bool) {
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

// WantsTrailers reports whether the client accepts trailers (RFC 9110 section 10.1.4). TE is a field of one connection,
// but gRPC sends it for the origin, and net/http's Transport keeps trailers.
func WantsTrailers(h http.Header) bool {
	return httpguts.HeaderValuesContainsToken(h["Te"], "trailers")
}

// DropPathFields removes the fields from which some servers (IIS, Symfony) read the path of a request instead of from
// its target: the proxy judged the target.
func DropPathFields(h http.Header) {
	for name := range h {
		if readsAs(name, "x-original-url") || readsAs(name, "x-rewrite-url") {
			delete(h, name)
		}
	}
}

// readsAs reports whether a server may take name for field, which is in lower case. A server that maps fields to
// variables, as CGI does, reads "_" as "-", and some read every byte other than a letter or a digit so.
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

// CleanTrailer removes from trailers the proxy's own fields, and fields that may only stand in a header (RFC 9110
// section 6.5.1). A recipient that merges these into the header would read another message.
func CleanTrailer(trailer http.Header) {
	for name := range trailer {
		if isOwnField(name) || !httpguts.ValidTrailerHeader(name) {
			delete(trailer, name)
		}
	}
	DropOwnStatus(trailer)
}

// CleanRequestTrailer makes r send clean trailers: those that it announces now, and those that arrive after its body.
func CleanRequestTrailer(r *http.Request) {
	if len(r.Trailer) == 0 {
		return
	}
	cleanPathTrailer(r.Trailer)
	b := trailedBody{r.Body, r.Trailer, r.Trailer.Clone()}
	r.Body, r.Trailer = b, b.sent
}

func cleanPathTrailer(trailer http.Header) {
	CleanTrailer(trailer)
	DropPathFields(trailer)
}

// trailedBody is a request body that trailers follow.
type trailedBody struct {
	io.ReadCloser
	trailer http.Header // net/http's server fills it at the end of the body
	sent    http.Header // for the Transport, which may still read it while the server writes into trailer
}

func (b trailedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		maps.Copy(b.sent, b.trailer)
		cleanPathTrailer(b.sent)
	}
	return n, err
}

package proxy

import (
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/robotsproxy/robotsproxy/policy"
)

// handshake is the opening handshake of a WebSocket as its client asks for it (RFC 6455 section 4.1). An answer that does not
// match it changes no protocol: after a 101 nothing is judged any more.
type handshake struct {
	accept     string   // the Sec-WebSocket-Accept that answers the client's key
	protocols  []string // the subprotocols that are offered
	extensions []string // the names of the extensions that are offered
}

// acceptSuffix is hashed with the key (RFC 6455 section 1.3).
const acceptSuffix = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

// readHandshake reads the handshake of r, whose header is as the origin will see it.
func readHandshake(r *http.Request) (*handshake, error) {
	key, err := base64.StdEncoding.DecodeString(only(r.Header["Sec-Websocket-Key"]))
	protocols, extensions := elements(r.Header["Sec-Websocket-Protocol"]), names(r.Header["Sec-Websocket-Extensions"])
	switch {
	case r.Method != http.MethodGet:
		return nil, errors.New("a WebSocket is asked for with GET")
	case r.ContentLength != 0:
		return nil, errors.New("a request for a WebSocket has no body")
	case only(r.Header["Sec-Websocket-Version"]) != "13":
		return nil, errors.New("Sec-WebSocket-Version is not 13")
	case err != nil || len(key) != 16:
		return nil, errors.New("Sec-WebSocket-Key is not one value of 16 bytes in base64")
	case !areTokens(protocols) || repeats(protocols):
		return nil, errors.New("Sec-WebSocket-Protocol is not a list of different tokens")
	case !areTokens(extensions):
		return nil, errors.New("Sec-WebSocket-Extensions is not a list of tokens with parameters")
	}
	sum := sha1.Sum([]byte(only(r.Header["Sec-Websocket-Key"]) + acceptSuffix))
	return &handshake{base64.StdEncoding.EncodeToString(sum[:]), protocols, extensions}, nil
}

// check returns why an origin's 101 with the header answer is no answer to h (RFC 6455 section 4.1, the list at its end). A
// nil h asked for no WebSocket, and no 101 answers it.
func (h *handshake) check(answer http.Header) error {
	switch {
	case h == nil:
		return errors.New("it was not asked for a WebSocket")
	case !asksWebSocket(answer) || !strings.EqualFold(only(answer["Upgrade"]), "websocket"):
		return errors.New("it does not upgrade to websocket, and to nothing else")
	case only(answer["Sec-Websocket-Accept"]) != h.accept:
		return errors.New("Sec-WebSocket-Accept does not answer the key")
	case len(answer["Sec-Websocket-Protocol"]) > 0 && !slices.Contains(h.protocols, only(answer["Sec-Websocket-Protocol"])):
		return errors.New("Sec-WebSocket-Protocol is not one that was offered")
	}
	for _, name := range names(answer["Sec-Websocket-Extensions"]) {
		if !slices.Contains(h.extensions, name) {
			return fmt.Errorf("the extension %q was not offered", name)
		}
	}
	return nil
}

func handshakeRefusal(err error) *Refusal {
	err = fmt.Errorf("this is no handshake of a WebSocket (RFC 6455 section 4.1): %w", err)
	return &Refusal{Reason: policy.ReasonBadRequest, Detail: err.Error() + ".", Err: err}
}

// only returns the value of a field that has one value, and "" for any other.
func only(values []string) string {
	if len(values) != 1 {
		return ""
	}
	return values[0]
}

// elements returns the members of a field that is a list (RFC 9110 section 5.6.1).
func elements(values []string) (all []string) {
	for _, v := range values {
		for element := range strings.SplitSeq(v, ",") {
			if element = strings.Trim(element, " \t"); element != "" {
				all = append(all, element)
			}
		}
	}
	return all
}

// names returns the members of a field that is a list, without their parameters. A comma can stand in none of these, since
// each of them is a token (RFC 6455 section 9.1).
func names(values []string) []string {
	all := elements(values)
	for i, element := range all {
		name, _, _ := strings.Cut(element, ";")
		all[i] = strings.Trim(name, " \t")
	}
	return all
}

func areTokens(all []string) bool {
	return !slices.ContainsFunc(all, func(s string) bool { return !httpguts.ValidHeaderFieldName(s) })
}

func repeats(all []string) bool {
	for i, s := range all {
		if slices.Contains(all[:i], s) {
			return true
		}
	}
	return false
}

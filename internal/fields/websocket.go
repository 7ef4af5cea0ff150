package fields

import (
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// WantsWebSocket reports whether h is one side of the opening handshake of a WebSocket (RFC 6455 section 4).
func WantsWebSocket(h http.Header) bool {
	return httpguts.HeaderValuesContainsToken(h["Connection"], "upgrade") &&
		httpguts.HeaderValuesContainsToken(h["Upgrade"], "websocket")
}

// Handshake is a client's opening handshake of a WebSocket (RFC 6455 section 4.1). The proxy compares it with the
// origin's answer: an answer that does not match changes no protocol, and after a 101 the proxy judges nothing.
type Handshake struct {
	accept     string   // the Sec-WebSocket-Accept that answers the client's key
	protocols  []string // the subprotocols that the client offers
	extensions []string // the names of the extensions that the client offers
}

// acceptSuffix is hashed with the key (RFC 6455 section 1.3).
const acceptSuffix = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

// ReadHandshake reads the handshake of r, or says which requirement of RFC 6455 section 4.1 it breaks. Call it after
// CleanHeader, so that it reads the header that the origin will.
func ReadHandshake(r *http.Request) (*Handshake, error) {
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
	return &Handshake{base64.StdEncoding.EncodeToString(sum[:]), protocols, extensions}, nil
}

// Check returns an error if a 101 with the header answer does not answer h (RFC 6455 section 4.1, the list at its end).
// A nil h stands for a request without a handshake, which no 101 answers.
func (h *Handshake) Check(answer http.Header) error {
	switch {
	case h == nil:
		return errors.New("it was not asked for a WebSocket")
	case !WantsWebSocket(answer) || !strings.EqualFold(only(answer["Upgrade"]), "websocket"):
		return errors.New("it does not upgrade to websocket alone")
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

// only returns the value of a field that has one value, and "" for any other.
func only(values []string) string {
	if len(values) != 1 {
		return ""
	}
	return values[0]
}

// elements returns the members of a list of tokens (RFC 9110 section 5.6.1).
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

// names returns the members of a list, without their parameters. Parameters are tokens too (RFC 6455 section 9.1), so a
// comma always separates two members.
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

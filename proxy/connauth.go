package proxy

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/robotsproxy/robotsproxy/policy"
)

// Some schemes authenticate a connection and not a request (RFC 4559 section 6, NTLM). Connections to origins are shared by
// all clients, so such credentials would lend their user to the next client. They are never sent, and their challenges are
// not passed on.

// errConnectionAuth is what an answer comes to that offers nothing but authentication of the connection.
var errConnectionAuth = errors.New("the origin offers nothing but authentication of the connection (NTLM, Negotiate)")

// isConnectionScheme reports whether credentials of a scheme hold for a connection. Nego2 and Kerberos are older names of
// Negotiate.
func isConnectionScheme(name string) bool {
	switch strings.ToLower(name) {
	case "ntlm", "negotiate", "nego2", "kerberos":
		return true
	}
	return false
}

// refuseConnectionAuth refuses a request that would authenticate the connection that it is sent on.
func refuseConnectionAuth(h http.Header) *Refusal {
	for _, v := range h["Authorization"] {
		for _, c := range challenges(v) {
			if isConnectionScheme(c.scheme) {
				return connectionAuthRefusal(errors.New("the request has credentials of the scheme " + c.scheme))
			}
		}
	}
	return nil
}

func connectionAuthRefusal(err error) *Refusal {
	return &Refusal{
		Reason: policy.ReasonConnectionAuth, Err: err,
		Detail: "NTLM and Negotiate authenticate a connection, and all clients of this proxy share its connections. Use a scheme such as Basic, Digest or Bearer.",
	}
}

// dropConnectionAuth removes the challenges for a connection from h. It reports whether a challenge was there and none is
// left.
func dropConnectionAuth(h http.Header) (none bool) {
	fields := h["Www-Authenticate"]
	if len(fields) == 0 {
		return false
	}
	dropped, kept := false, make([]string, 0, len(fields))
	for _, v := range fields {
		all := challenges(v)
		others := slices.DeleteFunc(slices.Clone(all), func(c challenge) bool { return isConnectionScheme(c.scheme) })
		switch len(others) {
		case len(all):
			kept = append(kept, v)
			continue
		case 0:
		default:
			kept = append(kept, joined(others))
		}
		dropped = true
	}
	h["Www-Authenticate"] = kept
	if len(kept) == 0 {
		delete(h, "Www-Authenticate")
	}
	return dropped && len(kept) == 0
}

// challenge is one member of a list of challenges or credentials (RFC 9110 section 11.3).
type challenge struct {
	scheme string // empty: parameters that follow no scheme
	text   string // all of it, as it came
}

// challenges splits the value of a field. Commas stand between challenges and between the parameters of one: an element
// that is no parameter begins a challenge.
func challenges(value string) (all []challenge) {
	for _, element := range splitList(value) {
		scheme := schemeOf(element)
		if scheme != "" || len(all) == 0 {
			all = append(all, challenge{scheme, element})
			continue
		}
		last := &all[len(all)-1]
		last.text += ", " + element
	}
	return all
}

// schemeOf returns the scheme that an element begins, and "" if it is a parameter: a token, white space or none, and "=".
func schemeOf(element string) string {
	end := strings.IndexFunc(element, func(c rune) bool { return !httpguts.IsTokenRune(c) })
	if end < 0 {
		return element
	}
	if strings.HasPrefix(strings.TrimLeft(element[end:], " \t"), "=") {
		return ""
	}
	return element[:end]
}

// splitList splits a list at the commas outside quoted strings (RFC 9110 section 5.6.4). Empty elements are left out.
func splitList(value string) (all []string) {
	begin, quoted := 0, false
	add := func(end int) {
		if element := strings.Trim(value[begin:end], " \t"); element != "" {
			all = append(all, element)
		}
	}
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			add(i)
			begin = i + 1
		}
	}
	add(len(value))
	return all
}

func joined(all []challenge) string {
	texts := make([]string, len(all))
	for i, c := range all {
		texts[i] = c.text
	}
	return strings.Join(texts, ", ")
}

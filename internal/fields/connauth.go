package fields

import (
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// isConnectionScheme reports whether credentials of a scheme authenticate a connection instead of a request (RFC 4559
// section 6, NTLM). Nego2 and Kerberos are older names of Negotiate.
func isConnectionScheme(name string) bool {
	switch strings.ToLower(name) {
	case "ntlm", "negotiate", "nego2", "kerberos":
		return true
	}
	return false
}

// ConnectionScheme returns the scheme of credentials in Authorization that would authenticate the connection to the
// origin, or "" if there are none. The proxy's connections are shared: the next client's requests would have these
// credentials.
func ConnectionScheme(h http.Header) string {
	for _, v := range h["Authorization"] {
		for _, c := range challenges(v) {
			if isConnectionScheme(c.scheme) {
				return c.scheme
			}
		}
	}
	return ""
}

// DropConnectionAuth removes from WWW-Authenticate the challenges that ask for authentication of the connection. It
// reports whether it removed all challenges that h had.
func DropConnectionAuth(h http.Header) (all bool) {
	values := h["Www-Authenticate"]
	if len(values) == 0 {
		return false
	}
	dropped, kept := false, make([]string, 0, len(values))
	for _, v := range values {
		had := challenges(v)
		others := slices.DeleteFunc(slices.Clone(had), func(c challenge) bool { return isConnectionScheme(c.scheme) })
		switch len(others) {
		case len(had):
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
	scheme string // empty for parameters that follow no scheme
	text   string // the whole member, unchanged
}

// challenges splits the value of a field. A comma separates both challenges and the parameters of one challenge: an
// element that is not a parameter begins a challenge.
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

// schemeOf returns the scheme that begins an element, or "" if the element is a parameter: a token, optional white
// space, and "=".
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

// splitList splits a list at the commas outside quoted strings (RFC 9110 section 5.6.4), without its empty elements.
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

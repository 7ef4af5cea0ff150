package rules

import (
	"bytes"
	"net/url"
	"strings"
)

// isPath reports whether a rule's value is a path, which needs no resolution.
func isPath(value []byte) bool {
	return len(value) == 0 || value[0] == '/' && !bytes.HasPrefix(value, []byte("//"))
}

// resolved resolves a rule's value as a URL relative to that of the file, and returns its path and query. ok is false
// if the URL is invalid or of another origin.
func (p *parser) resolved(value []byte) (path []byte, ok bool) {
	u, err := url.Parse(escapeStray(value))
	if err != nil {
		return nil, false
	}
	if p.base != nil {
		u = p.base.ResolveReference(u)
		if originOf(u) != originOf(p.base) {
			return nil, false
		}
	}
	if u.Opaque != "" {
		return nil, false
	}
	path = []byte(u.RequestURI())
	if len(path) == 0 || path[0] != '/' {
		path = append([]byte("/"), path...) // relative to a file with an unknown URL
	}
	return path, true
}

// escapeStray encodes each "%" that does not begin an escape. url.Parse rejects it otherwise.
func escapeStray(value []byte) string {
	var b strings.Builder
	for i, c := range value {
		b.WriteByte(c)
		if c == '%' && !isEscape(value, i) {
			b.WriteString("25")
		}
	}
	return b.String()
}

// originOf returns the origin of u in a canonical form.
func originOf(u *url.URL) string {
	port := u.Port()
	if scheme := strings.ToLower(u.Scheme); port == "" {
		port = map[string]string{"http": "80", "https": "443", "ftp": "21"}[scheme]
	}
	return strings.ToLower(u.Scheme + "://" + u.Hostname() + ":" + port)
}

// elsewhere reports whether a target is a URL of another origin, in a dialect that does not judge it.
func (r *Ruleset) elsewhere(target string) bool {
	if r.base == "" || strings.HasPrefix(target, "/") {
		return false
	}
	u, err := url.Parse(target)
	return err == nil && u.Host != "" && originOf(u) != r.base
}

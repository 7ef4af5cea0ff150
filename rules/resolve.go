package rules

import (
	"bytes"
	"net/url"
	"strings"
)

// isPath reports whether a rule's value is a path as it stands.
func isPath(value []byte) bool {
	return len(value) == 0 || value[0] == '/' && !bytes.HasPrefix(value, []byte("//"))
}

// resolved reads a rule's value as a URL, relative to that of the file, and returns its path and query. It is not ok
// where that is the URL of another origin.
func (p *parser) resolved(value []byte) (path []byte, ok bool) {
	u, err := url.Parse(string(value))
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
	return []byte(u.RequestURI()), true
}

// originOf returns what the URLs of one origin have in common.
func originOf(u *url.URL) string {
	port := u.Port()
	if scheme := strings.ToLower(u.Scheme); port == "" {
		port = map[string]string{"http": "80", "https": "443", "ftp": "21"}[scheme]
	}
	return strings.ToLower(u.Scheme + "://" + u.Hostname() + ":" + port)
}

// elsewhere reports whether a target is a URL of another origin than the file, where that matters.
func (r *Ruleset) elsewhere(target string) bool {
	if r.base == "" || strings.HasPrefix(target, "/") {
		return false
	}
	u, err := url.Parse(target)
	return err == nil && u.Host != "" && originOf(u) != r.base
}

package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/robotsproxy/robotsproxy/internal/settings"
	"github.com/robotsproxy/robotsproxy/internal/webhook"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/sign"
)

// texts are the kinds of string, by the "as" tag of the field. None may contain a control character: many are written
// to a header or a log line, and a line break would begin another one.
var texts = map[string]settings.Scalar{
	"":        text("text on one line", parseLine),
	"path":    text("a path", parseLine),
	"address": text("an address and a port such as 127.0.0.1:3128", parseAddress),
	"host":    text("a host such as a.example", parseHost),
	"pattern": text("a host such as a.example, or *.example for every host below it", parsePattern),
	"product": text("a product token such as NewsBot: letters, digits, - and _ (RFC 9309 section 2.2.1)", parseProduct),
	"subject": text("the whole subject of a certificate such as CN=ci,O=Example, "+
		"as openssl x509 -subject -nameopt RFC2253 prints it", parseSubject),
	"agent":   text("a User-Agent of visible ASCII such as NewsBot/1.0 (+https://example.org/bot)", parseAgent),
	"prefix":  text("a prefix of keys without { and }", parsePrefixOfKeys),
	"redis":   formatted("redis://host:6379, rediss:// over TLS or unix:///run/redis.sock", parseRedis, redacted).Secret(),
	"proxy":   text("the URL of a proxy such as http://proxy.example:3128, or https://", parseProxy),
	"webhook": formatted("an https URL, or an http URL of this machine", parseWebhook, withoutPath).Secret(),
	"signer":  text("an https URL such as https://crawler.example.org, or none", parseSigner),
	"contact": text("a URL such as https://example.org/crawler, or mailto:crawler@example.org", parseContact),
}

func text(expected string, parse func(string) (string, error)) settings.Scalar {
	return formatted(expected, parse, func(s string) string { return s })
}

// formatted is a text that show formats, for example without its password.
func formatted(expected string, parse func(string) (string, error), show func(string) string) settings.Scalar {
	return settings.Of(expected, func(s string) (string, error) {
		if s, err := parseLine(s); err != nil {
			return s, err
		}
		return parse(s)
	}, show)
}

func parseLine(s string) (string, error) {
	if strings.ContainsFunc(s, unicode.IsControl) {
		return "", errors.New("control characters do not belong here")
	}
	return s, nil
}

// parseAddress reads an address for net.Listen with a numeric port; 0 is any free port.
func parseAddress(s string) (string, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", settings.ErrNoHint
	}
	if n, err := parseInt(port); err != nil || n < 0 || n > 65535 {
		return "", errors.New("the port is a number from 0 to 65535")
	}
	if _, err := netip.ParseAddr(host); err == nil || host == "" {
		return s, nil
	}
	if _, err := origin.Host(host); err != nil {
		return "", hint(err)
	}
	return s, nil
}

// parseRedis reads the address of a Redis server; the Redis client reads it completely. It may be empty.
func parseRedis(s string) (string, error) {
	if s == "" {
		return s, nil
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return "", settings.ErrNoHint
	case (u.Scheme == "redis" || u.Scheme == "rediss") && u.Host != "" || u.Scheme == "unix" && u.Path != "":
		return s, nil
	}
	return "", settings.ErrNoHint
}

// parseSigner reads the URL of an agent that signs.
func parseSigner(s string) (string, error) {
	if s == NoSigner || s == "" {
		return s, nil
	}
	if err := sign.CheckAgent(s); err != nil {
		return "", settings.ErrNoHint
	}
	return s, nil
}

// redacted returns an address that parseRedis accepts, without its passwords.
func redacted(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return ""
	}
	if q := u.Query(); q.Has("password") {
		q.Set("password", "xxxxx")
		u.RawQuery = q.Encode()
	}
	return u.Redacted()
}

// parseWebhook reads the URL of a webhook. It may be empty.
func parseWebhook(s string) (string, error) {
	if s != "" && webhook.Check(s) != nil {
		return "", settings.ErrNoHint
	}
	return s, nil
}

// withoutPath returns the scheme and host of a URL that parseWebhook accepts: the rest of it is often a secret.
func withoutPath(s string) string {
	u, err := url.Parse(s)
	if err != nil || s == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host + "/xxxxx"
}

// parsePrefixOfKeys reads the prefix of keys in Redis. It rejects braces, which would move the lanes of all hosts to
// one node of a Cluster.
func parsePrefixOfKeys(s string) (string, error) {
	if s == "" || strings.ContainsAny(s, "{} ") {
		return "", settings.ErrNoHint
	}
	return s, nil
}

// isLoopback reports whether only this machine can reach address. It is false for a name, because that may resolve to
// another address tomorrow.
func isLoopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// ParsePattern reads a host or a pattern of hosts, such as *.example, in the syntax of the configuration, and returns it
// in canonical form. It is "*" for all hosts.
func ParsePattern(text string) (string, error) { return parsePattern(text) }

// parsePattern returns a host pattern whose name is a key (see origin.Key).
func parsePattern(s string) (string, error) {
	if s == "*" {
		return s, nil
	}
	name, below := strings.CutPrefix(s, "*.")
	host, err := parseHost(name)
	if err != nil {
		return "", err
	}
	if !below {
		return origin.Key(host), nil
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return "", errors.New("nothing is below an address")
	}
	return "*." + host, nil
}

// parseProduct reads a product token. Departure: RFC 9309 section 2.2.1 allows letters, "-" and "_" only; crawlers such
// as MJ12bot have a digit in their token, and robots.txt files name them so.
func parseProduct(s string) (string, error) {
	name, _, versioned := strings.Cut(s, "/")
	notOurs := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
	}
	switch {
	case name == "" || strings.ContainsFunc(name, notOurs):
		return "", settings.ErrNoHint
	case versioned:
		return "", fmt.Errorf("the name alone, without version: %s", name)
	}
	return s, nil
}

// attributes are the types of attributes that have a short name in a subject (see auth.Subject).
var attributes = []string{"CN", "O", "OU", "C", "L", "ST", "STREET", "POSTALCODE", "SERIALNUMBER"}

// parseSubject reads the subject of a certificate in the form of RFC 2253. It rejects what no certificate can match:
// spaces around "=" and ",", and names of attributes that this form does not have. It may be empty.
func parseSubject(s string) (string, error) {
	for s := s; s != ""; {
		end := indexUnescaped(s, ",+")
		name, value, ok := strings.Cut(s[:end], "=")
		isOID := !strings.ContainsFunc(name, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
		switch {
		case !ok || value == "" || name == "":
			return "", settings.ErrNoHint
		case strings.TrimSpace(name) != name || value != strings.TrimLeft(value, " "):
			return "", errors.New("no space belongs around = and after a comma")
		case !slices.Contains(attributes, name) && !(isOID && strings.HasPrefix(value, "#")):
			return "", fmt.Errorf("an attribute is one of %s, or an OID with # and its value in hexadecimal",
				strings.Join(attributes, ", "))
		case end == len(s)-1:
			return "", settings.ErrNoHint
		}
		s = s[min(end+1, len(s)):]
	}
	return s, nil
}

// indexUnescaped returns the index of the first of chars in s that follows no backslash, or the length of s.
func indexUnescaped(s, chars string) int {
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
		} else if strings.IndexByte(chars, s[i]) >= 0 {
			return i
		}
	}
	return len(s)
}

// parseAgent reads the value of a User-Agent field. It may be empty.
func parseAgent(s string) (string, error) {
	if strings.TrimSpace(s) != s || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", settings.ErrNoHint
	}
	if len(s) > 1000 {
		return "", errors.New("of at most 1000 bytes")
	}
	return s, nil
}

// parseContact reads the contact for owners of sites. It rejects parentheses, since the contact is written in a comment
// of the User-Agent field (RFC 9110 section 5.6.5). It may be empty.
func parseContact(s string) (string, error) {
	if s == "" {
		return s, nil
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`()\`, r) }) {
		return "", errors.New(`visible ASCII without ( ) and \`)
	}
	u, err := url.Parse(s)
	switch {
	case err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "":
		return s, nil
	case err == nil && u.Scheme == "mailto" && strings.Contains(u.Opaque, "@"):
		return s, nil
	case !strings.Contains(s, ":") && strings.Contains(s, "@"):
		return "", fmt.Errorf("did you mean mailto:%s?", s)
	}
	return "", settings.ErrNoHint
}

// parseProxy reads the URL of a proxy. It rejects credentials, because logs and the command validate show the URL. It
// may be empty.
func parseProxy(s string) (string, error) {
	if s == "" {
		return s, nil
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.User == nil && u.Host == "":
		return "", settings.ErrNoHint // a hint with the URL would repeat misplaced credentials
	case u.User != nil:
		return "", errors.New("credentials do not belong here but in egress.upstream_proxy_credentials_file, as user:password")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "", errors.New("a proxy has no path")
	}
	if _, err := origin.FromURL(u); err != nil {
		return "", hint(err)
	}
	return u.Scheme + "://" + u.Host, nil
}

// hint removes the package name from an error of package origin.
func hint(err error) error { return errors.New(strings.TrimPrefix(err.Error(), "origin: ")) }

// parseHost reads a name or an IP address, with a hint for a value with a port or a URL.
func parseHost(s string) (string, error) {
	host, err := origin.Host(s)
	if err == nil {
		return host, nil
	}
	if _, _, more := net.SplitHostPort(s); more == nil || strings.Contains(s, "/") {
		return "", errors.New("write the host alone, without scheme, port and path")
	}
	return "", hint(err)
}

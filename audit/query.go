package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// QueryMode says how much of a query a Record keeps. Any other value than QueryKeep, QueryHash and QueryDrop masks it.
type QueryMode string

const (
	QueryMask QueryMode = "mask" // remove the values of parameters with names like credentials, and tokens
	QueryKeep QueryMode = "keep" // keep it unchanged
	QueryHash QueryMode = "hash" // keep its SHA-256 in hexadecimal
	QueryDrop QueryMode = "drop" // keep nothing
)

// Apply returns the part of a raw query to keep. QueryMask keeps all names, and all values except those of credentials,
// since rules match queries and an auditor must be able to verify that. It also searches URLs and JSON in values,
// however many times they are encoded, and removes the userinfo of URLs, JSON Web Tokens and what follows "Bearer".
func (m QueryMode) Apply(query string) string {
	switch m {
	case QueryKeep:
		return query
	case QueryHash:
		if query == "" {
			return ""
		}
		sum := sha256.Sum256([]byte(query))
		return "sha256:" + hex.EncodeToString(sum[:])
	case QueryDrop:
		return ""
	default:
		return queryMask.apply(query)
	}
}

// Path returns the part of a raw path to keep. QueryKeep keeps all of it. The other modes remove values with names like
// credentials, in path parameters (";jsessionid=") and in URLs within the path, and the userinfo of those URLs.
func (m QueryMode) Path(path string) string {
	if m == QueryKeep {
		return path
	}
	return pathMask.apply(path)
}

// Text returns the part of a text such as a User-Agent to keep, as Path does. It also removes credentials after the name
// of their scheme, as in "Bearer x", and JSON Web Tokens.
func (m QueryMode) Text(text string) string {
	if m == QueryKeep {
		return text
	}
	return maskWords(textMask.apply(text))
}

// MaskedURLs returns urls, such as the redirects of a robots.txt, without credentials.
func MaskedURLs(urls []string) []string {
	var masked []string
	for _, u := range urls {
		masked = append(masked, QueryMask.Text(u))
	}
	return masked
}

// credentialNames name credentials on their own; credentialWords do so as part of any name.
var (
	credentialNames = []string{"key", "sig", "auth", "code", "sid", "pass", "pin", "otp", "refresh"}
	credentialWords = []string{
		"token", "secret", "passw", "passphrase", "passcode", "pwd", "signature", "hmac", "credential", "apikey", "accesskey", "privatekey",
		"authorization", "oauth", "bearer", "ticket", "session", "sessid", "connectsid", "cookie", "jwt", "assertion", "samlresponse", "csrf", "xsrf",
	}
)

var unseparated = strings.NewReplacer("-", "", "_", "", ".", "")

// isCredential reports whether name, or a part of it in brackets ("user[pass]"), names a credential.
func isCredential(name string) bool {
	folded := fold(name)
	for part := range strings.FieldsFuncSeq(folded, func(r rune) bool { return r == '[' || r == ']' }) {
		if slices.Contains(credentialNames, part) {
			return true
		}
	}
	return hasCredentialWord(folded)
}

// fold returns name as credentialWords write names.
func fold(name string) string { return unseparated.Replace(strings.ToLower(name)) }

func hasCredentialWord(folded string) bool {
	return slices.ContainsFunc(credentialWords, func(word string) bool { return strings.Contains(folded, word) })
}

package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// QueryMode says what a Record keeps of a query. The zero value masks.
type QueryMode uint8

const (
	QueryMask QueryMode = iota // cut the values of parameters that are named like credentials
	QueryKeep                  // as it was sent
	QueryHash                  // SHA-256 in hexadecimal
	QueryDrop                  // nothing
)

var queryModes = [...]string{QueryMask: "mask", QueryKeep: "keep", QueryHash: "hash", QueryDrop: "drop"}

// ParseQueryMode reads "mask", "keep", "hash" or "drop".
func ParseQueryMode(s string) (QueryMode, error) {
	for m, word := range queryModes {
		if s == word {
			return QueryMode(m), nil
		}
	}
	return QueryMask, fmt.Errorf("audit: query mode %q is none of mask, keep, hash and drop", s)
}

// Apply returns what is kept of a raw query. QueryMask keeps every name and every value but those of credentials, since
// rules match on queries and an auditor wants to see them match. It looks into URLs in values as well, however many times
// over they are encoded, and cuts their userinfo.
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

// Path returns what is kept of a raw path: with QueryKeep all of it, else all but the values that are named like
// credentials, in path parameters (";jsessionid=") and in URLs that are a part of it, and the userinfo of those.
func (m QueryMode) Path(path string) string {
	if m == QueryKeep {
		return path
	}
	return pathMask.apply(path)
}

// Text returns what is kept of a text such as a User-Agent, as Path does.
func (m QueryMode) Text(text string) string {
	if m == QueryKeep {
		return text
	}
	return textMask.apply(text)
}

// Names that are credentials when they stand alone, and words that make one of any name they stand in.
var (
	credentialNames = []string{"key", "sig", "auth", "code", "sid", "pass", "pin", "otp", "refresh"}
	credentialWords = []string{
		"token", "secret", "passw", "passphrase", "passcode", "pwd", "signature", "hmac", "credential", "apikey", "accesskey", "privatekey",
		"authorization", "oauth", "bearer", "ticket", "session", "sessid", "connectsid", "cookie", "jwt", "assertion", "samlresponse",
	}
)

var unseparated = strings.NewReplacer("-", "", "_", "", ".", "")

// isCredential reports whether name, or a part of it in brackets ("user[pass]"), is that of a credential.
func isCredential(name string) bool {
	folded := unseparated.Replace(strings.ToLower(name))
	for part := range strings.FieldsFuncSeq(folded, func(r rune) bool { return r == '[' || r == ']' }) {
		if slices.Contains(credentialNames, part) {
			return true
		}
	}
	return slices.ContainsFunc(credentialWords, func(word string) bool { return strings.Contains(folded, word) })
}

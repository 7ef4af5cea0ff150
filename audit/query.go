package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
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

// Apply returns what is kept of a raw query.
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
		return maskQuery(query)
	}
}

// maskQuery keeps every name and every value but those of credentials, since rules match on queries and an auditor
// wants to see them match.
func maskQuery(query string) string {
	if query == "" {
		return ""
	}
	var b strings.Builder
	for rest := query; rest != ""; {
		pair := rest
		sep := ""
		if i := strings.IndexAny(rest, "&;"); i >= 0 {
			pair, sep, rest = rest[:i], rest[i:i+1], rest[i+1:]
		} else {
			rest = ""
		}
		name, value, ok := strings.Cut(pair, "=")
		if ok && value != "" && isCredential(decodedName(name)) {
			pair = name + "=***"
		}
		b.WriteString(pair)
		b.WriteString(sep)
	}
	return b.String()
}

// decodedName is a name as a server reads it, so that "to%6ben" hides nothing.
func decodedName(name string) string {
	if decoded, err := url.QueryUnescape(name); err == nil {
		return decoded
	}
	return name
}

// Names that are credentials when they stand alone, and words that make one of any name they stand in.
var (
	credentialNames = []string{"key", "sig", "auth", "code", "sid", "pass", "pin", "otp"}
	credentialWords = []string{"token", "secret", "passw", "pwd", "signature", "credential", "apikey", "accesskey", "authorization", "session", "jwt"}
)

func isCredential(name string) bool {
	folded := strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(name))
	for _, n := range credentialNames {
		if folded == n {
			return true
		}
	}
	for _, w := range credentialWords {
		if strings.Contains(folded, w) {
			return true
		}
	}
	return false
}

package admin

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"

	"github.com/robotsproxy/robotsproxy/internal/durable"
)

// minToken keeps operators from tokens that can be tried out. Those that are made here have 64.
const minToken = 16

// LoadToken reads the token in the file at path, or makes one of 256 random bits and a file that only its owner may
// read. A file that others may read is refused, with the command that mends it. Created reports that it was made now.
func LoadToken(path string) (token string, created bool, err error) {
	data, err := durable.ReadSecret(path)
	if errors.Is(err, fs.ErrNotExist) {
		if created, err = createToken(path); err == nil {
			data, err = durable.ReadSecret(path)
		}
	}
	if err != nil {
		return "", false, fmt.Errorf("admin: loading the token: %w", err)
	}
	token = strings.TrimSpace(string(data))
	if err := checkToken(token); err != nil {
		return "", false, fmt.Errorf("admin: %s: %w: mend it, or remove the file and another is made", path, err)
	}
	return token, created, nil
}

// createToken reports false where another process was first.
func createToken(path string) (bool, error) {
	secret := make([]byte, 32)
	rand.Read(secret)
	err := durable.Create(path, []byte(hex.EncodeToString(secret)+"\n"), 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	return err == nil, err
}

// checkToken accepts what an Authorization field can carry (RFC 6750 section 2.1, b64token). It never quotes the token.
func checkToken(token string) error {
	if len(token) < minToken {
		return fmt.Errorf("the token has %d characters, and needs %d at least", len(token), minToken)
	}
	if strings.ContainsFunc(token, notTokenRune) {
		return errors.New("the token has characters other than letters, digits and -._~+/=")
	}
	return nil
}

func notTokenRune(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._~+/=", r))
}

// Protected returns next behind the token, and, for methods that change something, behind the check that no page of
// another site sent the request.
func (h *Handler) Protected(next http.Handler) http.Handler {
	next = h.crossOrigin.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, ok := bearer(r.Header)
		if !ok {
			unauthorized(w, `Bearer realm="robotsproxy"`)
			return
		}
		// The digests have one length, so that the time taken tells nothing of the token's.
		if sum := sha256.Sum256([]byte(given)); subtle.ConstantTimeCompare(sum[:], h.token[:]) == 0 {
			unauthorized(w, `Bearer realm="robotsproxy", error="invalid_token"`)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// bearer returns the token of an Authorization field (RFC 6750 section 2.1). The scheme's case does not matter
// (RFC 9110 section 11.1).
func bearer(h http.Header) (token string, ok bool) {
	scheme, token, _ := strings.Cut(h.Get("Authorization"), " ")
	return strings.TrimSpace(token), strings.EqualFold(scheme, "Bearer")
}

func unauthorized(w http.ResponseWriter, challenge string) {
	w.Header().Set("WWW-Authenticate", challenge)
	http.Error(w, "The token in robotsproxy's token file is needed: Authorization: Bearer TOKEN", http.StatusUnauthorized)
}

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

// minToken is the minimum length of a token, so that it cannot be guessed. Generated tokens have 64 characters.
const minToken = 16

// LoadToken reads the token in the file at path. If the file does not exist, it makes one with a token of 256 random
// bits that only its owner can read, and reports it as created. It refuses a file that other users can read, with the
// command that corrects it.
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

// createToken reports false if another process created the file first.
func createToken(path string) (bool, error) {
	secret := make([]byte, 32)
	rand.Read(secret)
	err := durable.Create(path, []byte(hex.EncodeToString(secret)+"\n"), 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	return err == nil, err
}

// checkToken accepts tokens that an Authorization field can carry (RFC 6750 section 2.1, b64token). Its errors never
// contain the token.
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

// Protected returns a handler that calls next only if the request has the token and, for methods that change state, is
// not a cross-origin request of a browser.
func (h *Handler) Protected(next http.Handler) http.Handler {
	next = h.crossOrigin.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, ok := bearer(r.Header)
		if !ok {
			unauthorized(w, `Bearer realm="robotsproxy"`)
			return
		}
		// The digests have the same length, so the duration of the comparison does not depend on that of the token.
		if sum := sha256.Sum256([]byte(given)); subtle.ConstantTimeCompare(sum[:], h.token[:]) == 0 {
			unauthorized(w, `Bearer realm="robotsproxy", error="invalid_token"`)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// bearer returns the token of an Authorization field (RFC 6750 section 2.1). The scheme is case-insensitive (RFC 9110
// section 11.1).
func bearer(h http.Header) (token string, ok bool) {
	scheme, token, _ := strings.Cut(h.Get("Authorization"), " ")
	return strings.TrimSpace(token), strings.EqualFold(scheme, "Bearer")
}

func unauthorized(w http.ResponseWriter, challenge string) {
	w.Header().Set("WWW-Authenticate", challenge)
	writeProblem(w, http.StatusUnauthorized, "The token in robotsproxy's token file is needed: Authorization: Bearer TOKEN")
}

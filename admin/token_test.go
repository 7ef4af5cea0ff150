package admin

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

func TestLoadToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "admin-token")
	first, created, err := LoadToken(path)
	if err != nil || !created || !regexp.MustCompile("^[0-9a-f]{64}$").MatchString(first) {
		t.Fatalf("LoadToken = %q, %v, %v; want 64 hexadecimal digits, made now", first, created, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("Stat(%s) = %v, %v; want mode 0600", path, info.Mode(), err)
	}
	again, created, err := LoadToken(path)
	if again != first || created || err != nil {
		t.Errorf("LoadToken again = %q, %v, %v; want the same, not made now", again, created, err)
	}
	other, _, err := LoadToken(filepath.Join(t.TempDir(), "admin-token"))
	if other == first || err != nil {
		t.Errorf("LoadToken elsewhere = %q, %v; want another", other, err)
	}
}

func TestLoadTokenAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin-token")
	const loaders = 16
	var mu sync.Mutex
	tokens, made := make(map[string]bool), 0 // guarded by mu
	var wg sync.WaitGroup
	for range loaders {
		wg.Go(func() {
			token, created, err := LoadToken(path)
			if err != nil {
				t.Errorf("LoadToken: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			tokens[token] = true
			if created {
				made++
			}
		})
	}
	wg.Wait()
	if len(tokens) != 1 || made != 1 {
		t.Errorf("LoadToken by %d at once: %d tokens, %d say that they made it; want 1, 1", loaders, len(tokens), made)
	}
}

func TestLoadTokenOfTheOperator(t *testing.T) {
	const secret = "an-operators-own.token_~+/="
	for _, tt := range []struct {
		name, text string
		mode       fs.FileMode
		want       string // in the error
	}{
		{"one line", secret + "\n", 0o600, ""},
		{"white space around", "\r\n " + secret + "\r\n", 0o400, ""},
		{"the group may read", secret, 0o640, "chmod 600"},
		{"all may read", secret, 0o604, "chmod 600"},
		{"empty", "", 0o600, "0 characters"},
		{"short", "hunter2", 0o600, "7 characters"},
		{"two lines", secret + "\n" + secret, 0o600, "other than letters"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(path, []byte(tt.text), tt.mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, tt.mode); err != nil { // whatever the umask is
				t.Fatal(err)
			}
			token, created, err := LoadToken(path)
			if tt.want == "" {
				if token != secret || created || err != nil {
					t.Errorf("LoadToken = %q, %v, %v; want %q", token, created, err, secret)
				}
				return
			}
			if err == nil || token != "" || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
				t.Fatalf("LoadToken = %q, %v; want an error with %q and the path", token, err, tt.want)
			}
			if tt.text != "" && strings.Contains(err.Error(), tt.text) {
				t.Errorf("LoadToken: the error shows the token: %v", err)
			}
		})
	}
}

func TestProtected(t *testing.T) {
	h := newHandler(t, Options{})
	protected := h.Protected(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	const plain, invalid = `Bearer realm="robotsproxy"`, `Bearer realm="robotsproxy", error="invalid_token"`
	for _, tt := range []struct {
		name, method string
		fields       []string
		status       int
		challenge    string
	}{
		{"RFC 6750 3/no credentials", "GET", nil, 401, plain},
		{"RFC 6750 3/another scheme", "GET", []string{"Authorization", "Basic " + testToken}, 401, plain},
		{"RFC 6750 3.1/empty", "GET", []string{"Authorization", "Bearer "}, 401, invalid},
		{"RFC 6750 3.1/the scheme alone", "GET", []string{"Authorization", "Bearer"}, 401, invalid},
		{"RFC 6750 3.1/wrong", "GET", []string{"Authorization", "Bearer 0123456789abcdeF"}, 401, invalid},
		{"RFC 6750 3.1/too short", "GET", []string{"Authorization", "Bearer " + testToken[:15]}, 401, invalid},
		{"RFC 6750 3.1/too long", "GET", []string{"Authorization", "Bearer " + testToken + "0"}, 401, invalid},
		{"RFC 6750 2.1/right", "GET", []string{"Authorization", "Bearer " + testToken}, 204, ""},
		{"RFC 9110 11.1/scheme in another case", "GET", []string{"Authorization", "bEARER " + testToken}, 204, ""},
		{"a change from the command line", "POST", []string{"Authorization", "Bearer " + testToken}, 204, ""},
		{"a change from our own page", "POST", []string{"Authorization", "Bearer " + testToken, "Sec-Fetch-Site", "same-origin"}, 204, ""},
		{"a change from another site", "POST", []string{"Authorization", "Bearer " + testToken, "Sec-Fetch-Site", "cross-site"}, 403, ""},
		{"a change from another origin", "DELETE", []string{"Authorization", "Bearer " + testToken, "Origin", "http://evil.example"}, 403, ""},
		{"a look from another site", "GET", []string{"Authorization", "Bearer " + testToken, "Sec-Fetch-Site", "cross-site"}, 204, ""},
		{"another site without the token", "POST", []string{"Sec-Fetch-Site", "cross-site"}, 401, plain},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := ask(protected, tt.method, "/api/x", tt.fields...)
			if got := w.Header().Get("WWW-Authenticate"); w.Code != tt.status || got != tt.challenge {
				t.Errorf("%s /api/x with %q = %d, challenge %q; want %d, %q", tt.method, tt.fields, w.Code, got, tt.status, tt.challenge)
			}
			if strings.Contains(w.Body.String(), testToken) {
				t.Errorf("the answer shows the token: %s", w.Body)
			}
		})
	}
	// RFC 6750 section 2.3: a token in a query would stand in logs and histories.
	if w := ask(protected, "GET", "/api/x?access_token="+testToken); w.Code != 401 {
		t.Errorf("GET /api/x?access_token=TOKEN = %d, want 401", w.Code)
	}
}

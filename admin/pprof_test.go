package admin

import (
	"strings"
	"testing"
)

func TestProfiles(t *testing.T) {
	token := "Bearer " + testToken
	for path, want := range map[string]string{
		"/debug/pprof/": "goroutine", "/debug/pprof/heap?debug=1": "heap profile", "/debug/pprof/goroutine?debug=2": "goroutine", "/debug/pprof/cmdline": "admin",
		"/debug/pprof/symbol?0x1": "num_symbols", "/debug/pprof/profile?seconds=1": "", "/debug/pprof/trace?seconds=0.1": "go 1",
	} {
		t.Run(path, func(t *testing.T) {
			h := newHandler(t, Options{Pprof: true})
			if w := ask(h, "GET", path); w.Code != 401 || strings.Contains(w.Body.String(), "heap") {
				t.Errorf("without the token: %d %s", w.Code, w.Body)
			}
			if w := ask(h, "GET", path, "Authorization", "Bearer 0123456789abcdee"); w.Code != 401 {
				t.Errorf("with another token: %d", w.Code)
			}
			if w := ask(h, "POST", path, "Authorization", token); w.Code != 405 {
				t.Errorf("POST: %d", w.Code)
			}
			w := ask(h, "GET", path, "Authorization", token)
			if w.Code != 200 || w.Body.Len() == 0 || !strings.Contains(w.Body.String(), want) {
				t.Errorf("with the token: %d, %d bytes, no %q", w.Code, w.Body.Len(), want)
			}
			checkSecurityHeaders(t, w.Header())
			if w := ask(newHandler(t, Options{}), "GET", path, "Authorization", token); w.Code != 404 {
				t.Errorf("without Options.Pprof: %d, want 404", w.Code)
			}
		})
	}
}

package admin

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

const testToken = "0123456789abcdef"

func newHandler(t *testing.T, o Options) *Handler {
	t.Helper()
	o.Token = testToken
	h, err := New(o)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return h
}

// ask sends a request to h as to http://localhost:3129. Fields are names and values in turn.
func ask(h http.Handler, method, path string, fields ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	r.Host = "localhost:3129"
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// page returns a handler that answers with text of a type.
func page(contentType, text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		io.WriteString(w, text)
	})
}

func TestEndpoints(t *testing.T) {
	const certificate = "-----BEGIN CERTIFICATE-----\n"
	h := newHandler(t, Options{
		CA:  page("application/x-x509-ca-cert", certificate),
		PAC: page("application/x-ns-proxy-autoconfig", "FindProxyForURL"),
	})
	for _, tt := range []struct {
		path   string
		status int
		kind   string
		body   string // a part of it
	}{
		{"/", 200, "text/html; charset=utf-8", "/healthz"},
		{"/healthz", 200, "text/plain; charset=utf-8", "ok\n"},
		{"/readyz", 200, "text/plain; charset=utf-8", "ok\n"},
		{"/ca.pem", 200, "application/x-x509-ca-cert", certificate},
		{"/proxy.pac", 200, "application/x-ns-proxy-autoconfig", "FindProxyForURL"},
		{"/metrics", 200, "text/plain; version=0.0.4; charset=utf-8; escaping=underscores", "go_goroutines"},
		{"/api/v1/status", 401, "application/problem+json", "Authorization: Bearer TOKEN"},
		{"/api/status", 401, "application/problem+json", "Authorization: Bearer TOKEN"},
		{"/nothing", 404, "text/plain; charset=utf-8", "not found"},
		{"/healthz/", 404, "text/plain; charset=utf-8", "not found"},
	} {
		t.Run(tt.path, func(t *testing.T) {
			w := ask(h, "GET", tt.path)
			if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.body) {
				t.Errorf("GET %s = %d %q, want %d with %q", tt.path, w.Code, w.Body, tt.status, tt.body)
			}
			if got := w.Header().Get("Content-Type"); got != tt.kind {
				t.Errorf("GET %s: Content-Type %q, want %q", tt.path, got, tt.kind)
			}
			checkSecurityHeaders(t, w.Header())
		})
	}
}

func checkSecurityHeaders(t *testing.T, h http.Header) {
	t.Helper()
	for name, want := range map[string]string{
		"X-Content-Type-Options":       "nosniff",
		"Content-Security-Policy":      "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Referrer-Policy":              "no-referrer",
		"Cache-Control":                "no-store",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// The index names what is served, and a browser can follow each link.
func TestIndexLinks(t *testing.T) {
	h := newHandler(t, Options{CA: page("", ""), PAC: page("", "")})
	page := ask(h, "GET", "/").Body.String()
	links := 0
	for _, part := range strings.Split(page, `href="`)[1:] {
		path, _, _ := strings.Cut(part, `"`)
		if w := ask(h, "GET", path); w.Code != 200 {
			t.Errorf("GET %s = %d, want 200, since the index links to it", path, w.Code)
		}
		links++
	}
	if links != 5 || !strings.Contains(page, "/api/v1/status") {
		t.Errorf("the index has %d links, want 5, and /api/v1/status: %s", links, page)
	}
}

// TestWithoutHandlers checks that a listener without a CA or a PAC file does not serve them.
func TestWithoutHandlers(t *testing.T) {
	h := newHandler(t, Options{})
	for _, path := range []string{"/ca.pem", "/proxy.pac"} {
		if w := ask(h, "GET", path); w.Code != 404 {
			t.Errorf("GET %s without a handler = %d, want 404", path, w.Code)
		}
	}
}

func TestReadyz(t *testing.T) {
	var cause error
	h := newHandler(t, Options{Ready: func() error { return cause }})
	if w := ask(h, "GET", "/readyz"); w.Code != 200 {
		t.Errorf("GET /readyz = %d, want 200", w.Code)
	}
	cause = errors.New("draining")
	if w := ask(h, "GET", "/readyz"); w.Code != 503 || w.Body.String() != "not ready: draining\n" {
		t.Errorf("GET /readyz = %d %q, want 503 with the cause", w.Code, w.Body)
	}
	if w := ask(h, "GET", "/healthz"); w.Code != 200 {
		t.Errorf("GET /healthz while not ready = %d, want 200", w.Code)
	}
}

func TestMethods(t *testing.T) {
	server := httptest.NewServer(newHandler(t, Options{CA: page("", "")}))
	defer server.Close()
	for _, path := range []string{"/", "/healthz", "/readyz", "/ca.pem", "/metrics", "/api/status"} {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "INVENTED"} {
			resp, _ := send(t, method, server.URL+path)
			if resp.StatusCode != 405 || resp.Header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s = %d, Allow %q; want 405, GET, HEAD", method, path, resp.StatusCode, resp.Header.Get("Allow"))
			}
			checkSecurityHeaders(t, resp.Header)
		}
		get, _ := send(t, "GET", server.URL+path)
		head, body := send(t, "HEAD", server.URL+path)
		if get.StatusCode != head.StatusCode || body != "" {
			t.Errorf("HEAD %s = %d %q, want %d and no body", path, head.StatusCode, body, get.StatusCode)
		}
	}
}

func send(t *testing.T, method, url string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func TestSetHosts(t *testing.T) {
	h := newHandler(t, Options{Hosts: []string{"a.example"}})
	if err := h.SetHosts([]string{"B.example"}); err != nil {
		t.Fatal(err)
	}
	if err := h.SetHosts([]string{"c d"}); err == nil {
		t.Error("SetHosts accepts a host with a space")
	}
	for host, known := range map[string]bool{"a.example": false, "b.example": true, "localhost": true} {
		if got := h.knows(host); got != known {
			t.Errorf("knows(%s) = %t, want %t", host, got, known)
		}
	}
}

func TestHost(t *testing.T) {
	h := newHandler(t, Options{Hosts: []string{"Proxy.Example.", "bücher.example"}})
	for host, known := range map[string]bool{
		"localhost":                   true,
		"localhost:3129":              true,
		"LOCALHOST.:3129":             true,
		"127.0.0.1:3129":              true,
		"192.0.2.7":                   true,
		"[::1]:3129":                  true,
		"[2001:db8::7]":               true,
		"proxy.example":               true,
		"PROXY.example:80":            true,
		"xn--bcher-kva.example":       true,
		"":                            false,
		"evil.example":                false,
		"localhost.evil.example":      false,
		"evil.example:3129":           false,
		"a.proxy.example":             false,
		"127.0.0.1.evil.example":      false,
		"127.1":                       false,
		"2130706433":                  false,
		"::1":                         false,
		"localhost:x":                 false,
		"localhost@evil.example":      false,
		"evil.example\r\nX: y":        false,
		"<script>":                    false,
		strings.Repeat("a", 64<<10):   false,
		"localhost:3129,evil.example": false,
	} {
		for _, path := range []string{"/healthz", "/nothing"} {
			r := httptest.NewRequest("GET", path, nil)
			r.Host = host
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if got := w.Code != http.StatusMisdirectedRequest; got != known {
				t.Errorf("GET %s with Host %.60q = %d, want it known: %v", path, host, w.Code, known)
			}
			if !known && (!strings.Contains(w.Body.String(), "DNS rebinding") || w.Body.Len() > 1000) {
				t.Errorf("GET %s with Host %.60q: %.1000q, want a short text that says why", path, host, w.Body)
			}
			checkSecurityHeaders(t, w.Header())
		}
	}
}

// The token does not help who comes under a foreign name.
func TestHostBeforeToken(t *testing.T) {
	r := httptest.NewRequest("GET", "/api/status", nil)
	r.Host = "evil.example"
	r.Header.Set("Authorization", "Bearer "+testToken)
	w := httptest.NewRecorder()
	newHandler(t, Options{}).ServeHTTP(w, r)
	if w.Code != http.StatusMisdirectedRequest {
		t.Errorf("GET /api/status of evil.example = %d, want 421", w.Code)
	}
}

func TestNewRefuses(t *testing.T) {
	value := func() float64 { return 0 }
	used := NewMetrics()
	newHandler(t, Options{Metrics: used})
	for _, tt := range []struct {
		name string
		o    Options
		want string
	}{
		{"no token", Options{}, "0 characters"},
		{"a short token", Options{Token: "secret"}, "6 characters"},
		{"a token that no field can carry", Options{Token: "0123456789 abcdef"}, "other than letters"},
		{"no host", Options{Token: testToken, Hosts: []string{"a b"}}, `name of the listener: origin: host "a b"`},
		{"a host with a port", Options{Token: testToken, Hosts: []string{"a.example:80"}}, "a.example:80"},
		{"a metric twice", Options{Token: testToken, Gauges: []Gauge{{Name: "robotsproxy_x", Help: "X.", Value: value}, {Name: "robotsproxy_x", Help: "X.", Value: value}}}, `"robotsproxy_x"`},
		{"a metric without a name", Options{Token: testToken, Gauges: []Gauge{{Value: value}}}, "registering the metric"},
		{"metrics of another handler", Options{Token: testToken, Metrics: used}, "registering the version"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, err := New(tt.o)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "admin: ") {
				t.Fatalf("New = %v, %v; want an error with %q", h, err, tt.want)
			}
			if tt.o.Token != "" && strings.Contains(err.Error(), tt.o.Token) {
				t.Errorf("New: the error shows the token: %v", err)
			}
		})
	}
}

// A path that the router would clean is refused, and not redirected.
func TestPathsAreNotCleaned(t *testing.T) {
	h := newHandler(t, Options{})
	for _, path := range []string{"//evil.example/private", "//", "/./", "/x/../healthz", "/api//status", "/..", "//healthz", "/healthz/.", "//healthz?x"} {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			r := httptest.NewRequest(method, "/", nil)
			r.URL, r.Host = &url.URL{}, "localhost:3129"
			r.URL.Path, r.URL.RawQuery, _ = strings.Cut(path, "?")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != http.StatusBadRequest || w.Header().Get("Location") != "" {
				t.Errorf("%s %s: %d, Location %q; want 400 and none", method, path, w.Code, w.Header().Get("Location"))
			}
		}
	}
}

// A reload that has changed nothing has an empty list of changes, and not null.
func TestReloadWithoutChanges(t *testing.T) {
	h := newHandler(t, Options{Reload: func() ([]Change, error) { return nil, nil }})
	w := ask(h, "POST", "/api/v1/reload", "Authorization", "Bearer "+testToken)
	if got := strings.TrimSpace(w.Body.String()); w.Code != 200 || got != `{"changes":[]}` {
		t.Errorf("%d %s", w.Code, got)
	}
}

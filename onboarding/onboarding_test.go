package onboarding

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/certs"
)

func openCA(t *testing.T) *certs.Authority {
	t.Helper()
	ca, err := certs.Open(certs.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// TestAddress checks that page and script name the address at which the client reached the proxy, and that no Host
// becomes script or markup.
func TestAddress(t *testing.T) {
	handler := Handler(openCA(t))
	for _, tt := range []struct {
		name, target, host, want string
	}{
		{"by its address", "/", "192.0.2.7:3128", "192.0.2.7:3128"},
		{"by a name", "/", "Proxy.example:3128", "proxy.example:3128"},
		{"by IPv6", "/", "[2001:db8::7]:3128", "[2001:db8::7]:3128"},
		{"port 80", "/", "proxy.example", "proxy.example:80"},
		{"through itself", "http://robots.proxy/", "robots.proxy", "10.1.2.3:3128"},
		{"by nonsense", "/", `"};alert(1);//<script>`, "10.1.2.3:3128"},
		{"by nothing", "/", "", "10.1.2.3:3128"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ask := func(path string) string {
				r := httptest.NewRequest("GET", strings.TrimSuffix(tt.target, "/")+path, nil)
				r.Host = tt.host
				local := &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 3128}
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(local))))
				if w.Code != http.StatusOK {
					t.Errorf("GET %s = %d", path, w.Code)
				}
				return w.Body.String()
			}
			if page := ask("/"); !strings.Contains(page, "curl --proxy http://"+tt.want+" ") || strings.Contains(page, "alert") {
				t.Errorf("the page does not name http://%s: %s", tt.want, page)
			}
			if script := ask("/proxy.pac"); !strings.Contains(script, fmt.Sprintf("return %q;", "PROXY "+tt.want)) || strings.Contains(script, "alert") {
				t.Errorf("the script does not name %s: %s", tt.want, script)
			}
		})
	}
}

// TestThrough checks that the page says whether the request came through the proxy.
func TestThrough(t *testing.T) {
	handler := Handler(openCA(t))
	for _, tt := range []struct {
		target     string
		serverName string // of TLS
		want       string
	}{
		{"/", "", ""},
		{"/", "proxy.example", ""},
		{"http://robots.proxy/", "", "</span> This request came through the proxy.<"},
		{"http://robots.proxy/", "proxy.example", "</span> This request came through the proxy.<"},
		{"http://robots.proxy/", "robots.proxy", "</span> This request came through the proxy, and the client trusts the CA.<"},
	} {
		r, w := httptest.NewRequest("GET", tt.target, nil), httptest.NewRecorder()
		if tt.serverName != "" {
			r.TLS = &tls.ConnectionState{ServerName: tt.serverName}
		}
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 3128})))
		handler.ServeHTTP(w, r)
		if page := w.Body.String(); !strings.Contains(page, tt.want) || (tt.want == "") == strings.Contains(page, "came through") {
			t.Errorf("%+v: %s", tt, page)
		}
	}
}

// TestRotation checks that the page and /ca.pem have both CAs of a rotation, and that every link of the page works.
func TestRotation(t *testing.T) {
	ca := openCA(t)
	old := ca.Certificate()
	if err := ca.Rotate(time.Hour); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(Handler(ca))
	defer server.Close()
	get := func(path string) (string, http.Header) {
		resp, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("GET %s = %d, %v", path, resp.StatusCode, err)
		}
		return string(body), resp.Header
	}
	page, _ := get("/")
	if n := strings.Count(page, "SHA-256"); n != 2 || !strings.Contains(page, certs.Fingerprint(old)) || !strings.Contains(page, "trust both") {
		t.Errorf("the page shows %d CAs, want both: %s", n, page)
	}
	for _, want := range []string{"<dt>Ends</dt><dd>" + old.NotAfter.UTC().Format("2 January 2006") + "</dd>", `print &gt; ("robotsproxy-ca-" n ".pem")`, "keytool and certutil read only the first", "http://USER:PASSWORD@"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q: %s", want, page)
		}
	}
	for _, part := range strings.Split(page, `href="`)[1:] {
		path, _, _ := strings.Cut(part, `"`)
		get(path)
	}
	pem, h := get("/ca.pem")
	if pem != string(ca.PEM()) || strings.Count(pem, "BEGIN") != 2 {
		t.Errorf("/ca.pem = %s, want both CAs", pem)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/x-x509-ca-cert", "Content-Disposition": `attachment; filename="robotsproxy-ca.pem"`,
	} {
		if got := h.Get(name); got != want {
			t.Errorf("/ca.pem: %s = %q, want %q", name, got, want)
		}
	}
	if _, h := get("/proxy.pac"); h.Get("Content-Type") != "application/x-ns-proxy-autoconfig" || h.Get("Cache-Control") != "no-store" {
		t.Errorf("/proxy.pac: %v", h)
	}
}

// TestProxyAddress checks the address that PAC names on another listener.
func TestProxyAddress(t *testing.T) {
	for _, tt := range []struct{ proxy, host, want string }{
		{"127.0.0.1:3128", "192.0.2.7", "127.0.0.1:3128"},
		{"10.0.0.7:3128", "localhost", "10.0.0.7:3128"},
		{"0.0.0.0:3128", "192.0.2.7", "192.0.2.7:3128"},
		{"0.0.0.0:3128", "192.0.2.7:3129", "192.0.2.7:3128"},
		{"[::]:3128", "proxy.example", "proxy.example:3128"},
		{"[::]:3128", "[2001:db8::7]:3129", "[2001:db8::7]:3128"},
		{"[::]:3128", `"};alert(1);//`, "[::]:3128"},
	} {
		proxy, err := net.ResolveTCPAddr("tcp", tt.proxy)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("GET", "/proxy.pac", nil)
		r.Host = tt.host
		w := httptest.NewRecorder()
		PAC(ProxyAddress(proxy)).ServeHTTP(w, r)
		if got := w.Body.String(); !strings.Contains(got, fmt.Sprintf("return %q;", "PROXY "+tt.want)) || strings.Contains(got, "alert") {
			t.Errorf("the script of a proxy at %s, reached at %s, does not name %s: %s", tt.proxy, tt.host, tt.want, got)
		}
	}
}

// TestNotFound checks that the answer to a program that takes the proxy for the site says so.
func TestNotFound(t *testing.T) {
	w := httptest.NewRecorder()
	Handler(openCA(t)).ServeHTTP(w, httptest.NewRequest("GET", "/page", nil))
	if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "This is the proxy itself.") {
		t.Errorf("GET /page = %d %s", w.Code, w.Body)
	}
}

// TestSecureHandler checks the scheme on the page and in the script of a proxy with TLS.
func TestSecureHandler(t *testing.T) {
	handler := SecureHandler(openCA(t))
	for path, want := range map[string]string{
		"/": "curl --proxy https://proxy.example:3128 ", "/proxy.pac": `return "HTTPS proxy.example:3128";`,
	} {
		r, w := httptest.NewRequest("GET", path, nil), httptest.NewRecorder()
		r.Host = "proxy.example:3128"
		handler.ServeHTTP(w, r)
		if body := w.Body.String(); !strings.Contains(body, want) || strings.Contains(body, "http://proxy.example") {
			t.Errorf("%s does not contain %q alone: %s", path, want, body)
		}
	}
}

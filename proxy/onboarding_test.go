package proxy

import (
	"context"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/certs"
	"github.com/robotsproxy/robotsproxy/policy"
)

func onboardingCA(t *testing.T) *certs.Authority {
	t.Helper()
	ca, err := certs.Open(certs.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// The page names the address by which it was asked for, also through the proxy, and nothing that a visitor invents
// becomes script or markup.
func TestOnboardingNamesTheProxy(t *testing.T) {
	handler := Onboarding(onboardingCA(t), nil)
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

// Both CAs of a rotation are shown and handed out, and every link leads somewhere.
func TestOnboardingWhileTheCARotates(t *testing.T) {
	ca := onboardingCA(t)
	old := ca.Certificate()
	if err := ca.Rotate(time.Hour); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(Onboarding(ca, nil))
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
	for _, want := range []string{`print &gt; ("robotsproxy-ca-" n ".pem")`, "keytool and certutil read only the first", "http://USER:PASSWORD@"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q: %s", want, page)
		}
	}
	for _, part := range strings.Split(page, `href="`)[1:] {
		path, _, _ := strings.Cut(part, `"`)
		get(path)
	}
	if pem, _ := get("/ca.pem"); pem != string(ca.PEM()) || strings.Count(pem, "BEGIN") != 2 {
		t.Errorf("/ca.pem = %s, want both CAs", pem)
	}
	_, h := get("/proxy.pac")
	if got := h.Get("Content-Type"); got != "application/x-ns-proxy-autoconfig" {
		t.Errorf("/proxy.pac: Content-Type %q", got)
	}
}

// Through the proxy the page is reached in clear and over TLS, by any version of HTTP, whatever becomes of other tunnels;
// what robots.proxy does not have is not asked for elsewhere.
func TestOnboardingThroughTheProxy(t *testing.T) {
	for _, how := range []policy.Interception{policy.Intercept, policy.Tunnel, policy.NoTunnel} {
		r := &rig{t: t}
		r = newRig(t, func(o *Options) {
			o.Policy = r.newPolicy(policy.Options{Interception: how})
			o.Onboarding = Onboarding(o.Authority, nil)
		})
		for _, http1 := range []bool{true, false} {
			for _, url := range []string{"http://robots.proxy/", "https://robots.proxy/", "https://robots.proxy/ca.pem"} {
				resp, body := r.get(r.client(http1), url)
				if resp.StatusCode != 200 || !strings.Contains(string(body), "BEGIN CERTIFICATE") && !strings.Contains(string(body), "curl --proxy http://"+r.addr+" ") {
					t.Errorf("%v: GET %s: %s\n%s", how, url, resp.Status, body)
				}
			}
			if resp, body := r.get(r.client(http1), "https://robots.proxy/page/1"); resp.StatusCode != 404 || !strings.Contains(string(body), "This is the proxy itself.") {
				t.Errorf("%v: a page that is not there: %s\n%s", how, resp.Status, body)
			}
			if resp, body := r.get(r.client(http1), "http://robots.proxy:8080/"); resp.StatusCode == 200 {
				t.Errorf("%v: another port: %s\n%s", how, resp.Status, body)
			}
		}
	}
}

// The commands on the page are those for this proxy, where they can be used.
func TestOnboardingNamesTheFlags(t *testing.T) {
	handler := Onboarding(onboardingCA(t), func() Flags { return Flags{" --data-dir '/var/lib/x y'", " --listen '127.0.0.1:4128'"} })
	for _, row := range []struct {
		from, host string
		told       bool
	}{
		{"127.0.0.1:5000", "127.0.0.1:4128", true},
		{"[::1]:5000", "[::1]:4128", true},
		{"[::ffff:127.0.0.1]:5000", "localhost:4128", true},
		{"127.0.0.1:5000", "robots.proxy", true},
		{"192.0.2.7:5000", "127.0.0.1:4128", false},
		{"", "127.0.0.1:4128", false},
		{"127.0.0.1:5000", "rebound.example:4128", false},
		{"127.0.0.1:5000", "", false},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr, r.Host = row.from, row.host
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		page := html.UnescapeString(w.Body.String())
		if got := strings.Contains(page, `"$(robotsproxy env --data-dir '/var/lib/x y' --listen '127.0.0.1:4128')"`); got != row.told {
			t.Errorf("%+v: the flags of env are told: %t, want %t: %s", row, got, row.told, page)
		}
		if got := strings.Contains(page, "/var/lib/"); got != row.told {
			t.Errorf("%+v: the folder is told: %t, want %t", row, got, row.told)
		}
	}
}

func TestPACAddress(t *testing.T) {
	for _, tt := range []struct{ local, host, want string }{
		{"127.0.0.1:3128", "192.0.2.7", "127.0.0.1:3128"},
		{"10.0.0.7:3128", "localhost", "10.0.0.7:3128"},
		{"0.0.0.0:3128", "192.0.2.7", "192.0.2.7:3128"},
		{"[::]:3128", "proxy.example", "proxy.example:3128"},
		{"[::]:3128", "2001:db8::7", "[2001:db8::7]:3128"},
	} {
		local, err := net.ResolveTCPAddr("tcp", tt.local)
		if err != nil {
			t.Fatal(err)
		}
		if got := PACAddress(local, tt.host); got != tt.want {
			t.Errorf("PACAddress(%s, %s) = %s, want %s", tt.local, tt.host, got, tt.want)
		}
	}
}

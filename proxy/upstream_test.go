package proxy

import (
	"bufio"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/robotsproxy/robotsproxy/egress"
	"github.com/robotsproxy/robotsproxy/internal/dnstest"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// upstreamProxy is a small forward proxy that resolves every name to this machine. It records its requests.
type upstreamProxy struct {
	*httptest.Server
	credentials string // what it wants in Proxy-Authorization; if empty, nothing
	connect     string // how it answers CONNECT; if empty, by a tunnel

	mu    sync.Mutex
	asked []string // method and target, as sent
}

// newUpstreamProxy starts an upstreamProxy, over TLS if scheme is https.
func newUpstreamProxy(t *testing.T, scheme string) *upstreamProxy {
	t.Helper()
	u := &upstreamProxy{}
	u.Server = httptest.NewUnstartedServer(u)
	u.Config.ErrorLog = log.New(io.Discard, "", 0)
	if scheme == "https" {
		u.StartTLS()
	} else {
		u.Start()
	}
	t.Cleanup(u.Close)
	return u
}

func (u *upstreamProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	u.asked = append(u.asked, r.Method+" "+r.RequestURI)
	u.mu.Unlock()
	if u.credentials != "" && r.Header.Get("Proxy-Authorization") != u.credentials {
		w.Header().Set("Proxy-Authenticate", `Basic realm="upstream"`)
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	if r.Method != http.MethodConnect {
		u.forward(w, r)
		return
	}
	client, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	if u.connect != "" {
		fmt.Fprint(client, u.connect)
		return
	}
	_, port, _ := net.SplitHostPort(r.RequestURI)
	server, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		return
	}
	defer server.Close()
	fmt.Fprint(client, "HTTP/1.1 200 OK\r\n\r\n")
	go io.Copy(server, client)
	io.Copy(client, server)
}

// forward sends r to the same port of this machine.
func (u *upstreamProxy) forward(w http.ResponseWriter, r *http.Request) {
	out := r.Clone(r.Context())
	out.RequestURI, out.URL.Host = "", "127.0.0.1:"+r.URL.Port()
	out.Header.Del("Proxy-Authorization")
	resp, err := http.DefaultTransport.RoundTrip(out)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	io.Copy(w, resp.Body)
}

func (u *upstreamProxy) requests() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]string(nil), u.asked...)
}

// upstream returns u as the proxy is configured with it.
func (u *upstreamProxy) upstream(t *testing.T) *egress.Upstream {
	at, err := url.Parse(u.URL)
	if err != nil {
		t.Fatal(err)
	}
	up := &egress.Upstream{URL: at}
	if cert := u.Certificate(); cert != nil {
		up.RootCAs = x509.NewCertPool()
		up.RootCAs.AddCert(cert)
	}
	return up
}

// behind makes a rig's proxy send everything through up. The names of its sites resolve to public addresses, where
// nothing can be reached: every request at the site came through the upstream proxy.
func behind(t *testing.T, up *egress.Upstream, more egress.Options, change ...func(*Options)) *rig {
	t.Helper()
	r := &rig{t: t}
	return newRig(t, func(o *Options) {
		more.Upstream = up
		if more.Resolver == nil {
			more.Resolve = map[string]netip.Addr{"a.example": netip.MustParseAddr("93.184.215.14"), "private.example": netip.MustParseAddr("10.1.2.3")}
		}
		o.Guard = egress.New(more)
		o.Pseudonym = egress.NewPseudonym()
		transport := egress.NewTransport(egress.TransportOptions{Guard: o.Guard, RootCAs: o.Transport.(siteTransport).roots, Pseudonym: o.Pseudonym})
		t.Cleanup(transport.CloseIdleConnections)
		o.Transport, o.Snapshots = transport, r.newCache(transport)
		for _, f := range change {
			f(o)
		}
	})
}

// knowsRules stores the rules of every site before the test.
func knowsRules(o *Options) { o.Snapshots = fixed(disallow) }

func TestEverythingGoesThroughTheUpstreamProxy(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		for _, way := range ways {
			t.Run(scheme+" for "+way.name, func(t *testing.T) {
				u := newUpstreamProxy(t, scheme)
				u.credentials = "Basic dXM6czNjcjN0OngvPyM="
				up := u.upstream(t)
				up.User = url.UserPassword("us", "s3cr3t:x/?#")
				r := behind(t, up, egress.Options{})
				r.site.SetRobots("a.example", robotstest.Robots{Body: disallow})
				c := r.client(way.http1)
				resp, body := r.get(c, r.url(way.scheme, "/bytes/100000"))
				if resp.StatusCode != 200 || len(body) != 100000 {
					t.Errorf("allowed: %s, %d octets\n%.200s", resp.Status, len(body), body)
				}
				if resp, _ := r.get(c, r.url(way.scheme, "/private/x")); resp.Header.Get("Robotsproxy-Reason") != "robots" {
					t.Errorf("disallowed: %s %v", resp.Status, resp.Header)
				}
				if got := r.site.Paths("a.example"); fmt.Sprint(got) != "[/bytes/100000 /robots.txt]" {
					t.Errorf("the origin was asked for %v", got)
				}
				for _, arrived := range r.site.Requests() {
					if v := arrived.Header.Get("Proxy-Authorization"); v != "" {
						t.Errorf("%s came with Proxy-Authorization %q", arrived.Target, v)
					}
				}
				checkAsked(t, way.scheme, u.requests(), r)
			})
		}
	}
}

// checkAsked checks the requests at the upstream proxy: names in absolute-form for http, and tunnels for https.
func checkAsked(t *testing.T, scheme string, asked []string, r *rig) {
	t.Helper()
	want := []string{"GET " + r.url("http", "/robots.txt"), "GET " + r.url("http", "/bytes/100000")}
	if scheme == "https" {
		want = []string{fmt.Sprintf("CONNECT a.example:%d", r.site.TLSPort())}
	}
	if fmt.Sprint(asked) != fmt.Sprint(want) {
		t.Errorf("the upstream proxy was asked for %q, want %q", asked, want)
	}
}

func TestRawConnectionThroughTheUpstreamProxy(t *testing.T) {
	u := newUpstreamProxy(t, "http")
	r := behind(t, u.upstream(t), egress.Options{})
	conn, err := r.server.settings.Load().Guard.DialContext(t.Context(), "tcp", fmt.Sprintf("a.example:%d", r.site.Port()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /page/1 HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("a raw connection through the upstream proxy: %v, %v", resp, err)
	}
	resp.Body.Close()
}

// The guard checks every address of a name, each time, before the upstream proxy is asked.
func TestTheGuardStandsBeforeTheUpstreamProxy(t *testing.T) {
	u := newUpstreamProxy(t, "http")
	names := dnstest.New(t)
	names.Set("one-bad.example", []string{"93.184.215.14", "10.0.0.1"})
	names.Set("turns-bad.example", []string{"93.184.215.14"}, []string{"93.184.215.14"}, []string{"127.0.0.1"})
	r := behind(t, u.upstream(t), egress.Options{Resolver: names.Resolver()})
	for _, scheme := range []string{"http", "https"} {
		for _, host := range []string{"one-bad.example", "127.0.0.1", "[::1]", "169.254.169.254"} {
			resp, body := r.get(r.client(true), fmt.Sprintf("%s://%s:%d/page/1", scheme, host, r.site.Port()))
			if resp.StatusCode != 403 || resp.Header.Get("Robotsproxy-Reason") != "egress" {
				t.Errorf("%s %s: %s\n%s", scheme, host, resp.Status, body)
			}
		}
	}
	// Only the proxy itself may dial the address of the upstream proxy.
	if resp, _ := r.get(r.client(true), u.URL+"/"); resp.Header.Get("Robotsproxy-Reason") != "egress" {
		t.Errorf("the upstream proxy itself: %s %v", resp.Status, resp.Header)
	}
	if got := u.requests(); len(got) > 0 {
		t.Errorf("the upstream proxy was asked: %q", got)
	}
	for i, want := range []string{"200 ", "403 egress"} { // the first after the fetch of robots.txt
		resp, _ := r.get(r.client(true), fmt.Sprintf("http://turns-bad.example:%d/page/1", r.site.Port()))
		if got := fmt.Sprintf("%d %s", resp.StatusCode, resp.Header.Get("Robotsproxy-Reason")); got != want {
			t.Errorf("request %d: %s, want %s", i+1, got, want)
		}
	}
	if got := r.site.Paths("turns-bad.example"); fmt.Sprint(got) != "[/page/1 /robots.txt]" {
		t.Errorf("the origin was asked for %v", got)
	}
}

// Every failure of the upstream proxy is reported as one, and nothing is sent another way.
func TestUpstreamProxyFailsClosed(t *testing.T) {
	dead := robotstest.Refusing(t)
	names := dnstest.New(t) // that of this machine may take its time
	names.Set("a.example", []string{"93.184.215.14"})
	here := egress.Options{Resolver: names.Resolver()}
	for _, row := range []struct {
		name    string
		change  func(*upstreamProxy, *egress.Upstream)
		schemes string
		want    string // Proxy-Status error and what the details say
	}{
		{"down", func(_ *upstreamProxy, up *egress.Upstream) { up.URL = &url.URL{Scheme: "http", Host: dead} }, "http https", "connection_refused; the upstream proxy failed: connection refused"},
		{"unknown name", func(_ *upstreamProxy, up *egress.Upstream) {
			up.URL = &url.URL{Scheme: "http", Host: "proxy.invalid:3128"}
		}, "http https", "dns_error; the upstream proxy failed: dns error"},
		{"wants credentials", func(u *upstreamProxy, _ *egress.Upstream) { u.credentials = "Basic x" }, "http https", "proxy_configuration_error; the upstream proxy failed: it answered 407 Proxy Authentication Required"},
		{"refuses CONNECT", func(u *upstreamProxy, _ *egress.Upstream) {
			u.connect = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
		}, "https", "destination_unavailable; the upstream proxy failed: it answered 403 Forbidden"},
		{"redirects CONNECT", func(u *upstreamProxy, _ *egress.Upstream) {
			u.connect = "HTTP/1.1 302 Found\r\nLocation: http://10.0.0.1/\r\n\r\n"
		}, "https", "destination_unavailable; the upstream proxy failed: it answered 302 Found"},
		{"sees a loop", func(u *upstreamProxy, _ *egress.Upstream) { u.connect = "HTTP/1.1 508 Loop Detected\r\n\r\n" }, "https", "proxy_loop_detected; the upstream proxy failed: it answered 508 Loop Detected"},
		{"closes", func(u *upstreamProxy, _ *egress.Upstream) { u.connect = "HTTP/1.1 200 OK\r\nX: y\r\n" }, "https", "http_response_incomplete; the upstream proxy failed: http response incomplete"},
		{"speaks no HTTP", func(u *upstreamProxy, _ *egress.Upstream) { u.connect = "SSH-2.0-x\r\n\r\n" }, "https", "http_protocol_error; the upstream proxy failed: http protocol error"},
		{"endless header", func(u *upstreamProxy, _ *egress.Upstream) {
			u.connect = "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n"
		}, "https", "http_response_incomplete; the upstream proxy failed: http response incomplete"},
		{"speaks before it is asked", func(u *upstreamProxy, _ *egress.Upstream) { u.connect = "HTTP/1.1 200 OK\r\n\r\nhello" }, "https", "destination_unavailable; the upstream proxy failed: destination unavailable"},
		{"speaks no TLS", func(_ *upstreamProxy, up *egress.Upstream) { up.URL = &url.URL{Scheme: "https", Host: up.URL.Host} }, "http https", "tls_protocol_error; the upstream proxy failed: tls protocol error"},
	} {
		for scheme := range strings.SplitSeq(row.schemes, " ") {
			t.Run(row.name+"/"+scheme, func(t *testing.T) {
				u := newUpstreamProxy(t, "http")
				up := u.upstream(t)
				row.change(u, up)
				errorType, words, _ := strings.Cut(row.want, "; t") // or T, where a sentence begins
				check := func(stage string, want int, r *rig) {
					resp, body := r.get(r.client(true), r.url(scheme, "/page/1"))
					status := resp.Header.Get("Proxy-Status")
					if resp.StatusCode != want || !strings.Contains(status, "error="+errorType+";") || !strings.Contains(status, words) || !strings.Contains(string(body), words) {
						t.Errorf("%s: %s %s, want %d %s\n%s", stage, resp.Status, status, want, row.want, body)
					}
					if strings.Contains(string(body), "127.0.0.1") || strings.Contains(status, "127.0.0.1") {
						t.Errorf("%s: an address of ours is told: %s\n%s", stage, status, body)
					}
					if got := r.site.Requests(); len(got) > 0 {
						t.Errorf("%s: the origin was asked by another way: %v", stage, got)
					}
				}
				check("robots.txt", 503, behind(t, up, here))
				pageStatus := 502
				if errorType == "proxy_loop_detected" {
					pageStatus = 508
				}
				check("a page", pageStatus, behind(t, up, here, knowsRules))
			})
		}
	}
}

// An https upstream proxy is verified.
func TestUpstreamProxyCertificate(t *testing.T) {
	u := newUpstreamProxy(t, "https")
	up := u.upstream(t)
	up.RootCAs = x509.NewCertPool()
	r := behind(t, up, egress.Options{})
	resp, _ := r.get(r.client(true), r.url("http", "/page/1"))
	if status := resp.Header.Get("Proxy-Status"); resp.StatusCode != 503 || !strings.Contains(status, "error=tls_certificate_error;") || !strings.Contains(status, "the upstream proxy failed: its certificate is signed by an unknown authority") {
		t.Errorf("%s %s", resp.Status, status)
	}
	if got := u.requests(); len(got) > 0 {
		t.Errorf("it was asked: %q", got)
	}
}

// A proxy that is its own upstream proxy, by any of its addresses, is detected before anything is sent.
func TestUpstreamProxyIsNotOurselves(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	names := dnstest.New(t)
	names.Set("two.example", []string{"::1", "127.0.0.1"}) // as localhost is, where the first is not listened at
	for host, ours := range map[string]bool{
		"127.0.0.1:" + port: true, "[::ffff:127.0.0.1]:" + port: true, "localhost:" + port: true, "mapped.example:" + port: true, "two.example:" + port: true,
		"proxy.invalid:3128": false, "127.0.0.1:1": false, "10.0.0.1": false,
	} {
		up := &egress.Upstream{URL: &url.URL{Scheme: "http", Host: host}}
		mapped := map[string]netip.Addr{"mapped.example": netip.MustParseAddr("127.0.0.1"), "a.example": netip.MustParseAddr("93.184.215.14")}
		e := egress.New(egress.Options{Upstream: up, Resolve: mapped, Resolver: names.Resolver()})
		e.Protect(l.Addr())
		err := e.CheckUpstream(t.Context())
		if found := err != nil && strings.Contains(err.Error(), "it is this proxy itself"); found != ours {
			t.Errorf("CheckUpstream with %s = %v, want found=%t", host, err, ours)
		}
		if !ours {
			continue
		}
		r := behind(t, up, egress.Options{}, knowsRules, func(o *Options) {
			o.Guard, o.Transport = e, egress.NewTransport(egress.TransportOptions{Guard: e})
		})
		for _, scheme := range []string{"http", "https"} {
			resp, body := r.get(r.client(true), r.url(scheme, "/page/1"))
			if resp.StatusCode != 508 || resp.Header.Get("Robotsproxy-Reason") != "loop" {
				t.Errorf("%s through %s: %s\n%s", scheme, host, resp.Status, body)
			}
		}
	}
}

// An upstream proxy may lead back to this proxy by an address that the proxy does not know as its own, as with a router
// between. A request that returns is recognized by its Via, also one for a robots.txt, and ends at once.
func TestUpstreamProxyThatLeadsBack(t *testing.T) {
	router, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { router.Close() })
	up := &egress.Upstream{URL: &url.URL{Scheme: "http", Host: router.Addr().String()}}
	lead := func(change ...func(*Options)) *rig {
		return behind(t, up, egress.Options{}, change...)
	}
	cold, warm := lead(), lead(knowsRules)
	var back atomic.Value
	back.Store(cold.addr)
	go func() {
		for {
			c, err := router.Accept()
			if err != nil {
				return
			}
			go relay(c, back.Load().(string))
		}
	}()
	resp, body := cold.get(cold.client(true), cold.url("http", "/page/1"))
	if resp.StatusCode != 503 || !strings.Contains(string(body), "the origin answered 508 Loop Detected") {
		t.Errorf("a robots.txt: %s\n%s", resp.Status, body)
	}
	back.Store(warm.addr)
	if resp, _ := warm.get(warm.client(true), warm.url("http", "/page/1")); resp.StatusCode != 508 {
		t.Errorf("a page: %s %v", resp.Status, resp.Header)
	}
}

// relay connects c with addr.
func relay(c net.Conn, addr string) {
	defer c.Close()
	to, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer to.Close()
	go io.Copy(to, c)
	io.Copy(c, to)
}

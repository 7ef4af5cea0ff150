package robotstest_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start returns a site and a client for which the site is the web, and which follows no redirect.
func start(t *testing.T) (*robotstest.Site, *http.Client) {
	t.Helper()
	site := robotstest.New(t)
	return site, newClient(t, site.Transport())
}

func newClient(t *testing.T, transport *http.Transport) *http.Client {
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport:     transport,
		Timeout:       10 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// http1 returns a client like that of start which speaks HTTP/1.1 over TLS too.
func http1(t *testing.T, site *robotstest.Site) *http.Client {
	transport := site.Transport()
	transport.ForceAttemptHTTP2 = false
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(true)
	return newClient(t, transport)
}

// get fetches url, of which an answer is expected, and reads its body whole.
func get(t *testing.T, client *http.Client, url string) (*http.Response, string) {
	t.Helper()
	res, err := client.Get(url)
	if err != nil {
		t.Fatalf("Get(%s): %v", url, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("Get(%s): reading the body: %v", url, err)
	}
	return res, string(body)
}

func TestProtocols(t *testing.T) {
	site, h2 := start(t)
	h1 := http1(t, site)
	for _, row := range []struct {
		name, url, proto string
		client           *http.Client
	}{
		{"plain", "http://a.example/", "HTTP/1.1", h2},
		{"TLS with HTTP/2", "https://a.example/", "HTTP/2.0", h2},
		{"TLS with HTTP/1.1", "https://a.example/", "HTTP/1.1", h1},
		{"a port", fmt.Sprintf("https://a.example:%d/", site.TLSPort()), "HTTP/2.0", h2},
		{"an address and no server name", fmt.Sprintf("https://127.0.0.1:%d/", site.TLSPort()), "HTTP/2.0", h2},
	} {
		t.Run(row.name, func(t *testing.T) {
			site.Reset()
			res, _ := get(t, row.client, row.url)
			if res.StatusCode != http.StatusOK || res.Proto != row.proto {
				t.Errorf("Get(%s) = %d over %s, want 200 over %s", row.url, res.StatusCode, res.Proto, row.proto)
			}
			if got := site.Requests(); len(got) != 1 || got[0].Proto != row.proto || got[0].TLS != strings.HasPrefix(row.url, "https:") {
				t.Errorf("Get(%s): recorded %+v, want one request over %s", row.url, got, row.proto)
			}
		})
	}
}

func TestFaultyLeaves(t *testing.T) {
	_, client := start(t)
	for _, row := range []struct {
		host string
		as   any
	}{
		{"expired.example", new(x509.CertificateInvalidError)},
		{"wrong-name.example", new(x509.HostnameError)},
		{"untrusted.example", new(x509.UnknownAuthorityError)},
	} {
		res, err := client.Get("https://" + row.host + "/")
		if err == nil {
			res.Body.Close()
		}
		if !errors.As(err, row.as) {
			t.Errorf("Get(https://%s/): error %v, want a %T", row.host, err, row.as)
		}
	}
}

func TestCAFile(t *testing.T) {
	site, err := robotstest.Start(robotstest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer site.Close()
	pem, err := os.ReadFile(site.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) || !pool.Equal(site.CAPool()) {
		t.Errorf("CAFile() holds\n%s\nwant the certificate of CAPool()", pem)
	}
	conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", site.TLSPort()), &tls.Config{RootCAs: pool, ServerName: "any.host.example"})
	if err != nil {
		t.Fatalf("Dial with the CA of CAFile(): %v", err)
	}
	conn.Close()

	site.Close()
	if _, err := os.Stat(site.CAFile()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Stat(%s) after Close: error %v, want that it does not exist", site.CAFile(), err)
	}
	if conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", site.Port())); err == nil {
		conn.Close()
		t.Error("Dial after Close: connected, want it refused")
	}
}

func TestCloseEndsHandlers(t *testing.T) {
	site, client := start(t)
	started := make(chan struct{})
	site.SetPage("", "/wait", func(w http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done()
	})
	done := make(chan error)
	go func() {
		res, err := client.Get("http://a.example/wait")
		if err == nil {
			res.Body.Close()
		}
		done <- err
	}()
	<-started
	site.Close()
	if err := <-done; err == nil {
		t.Error("Get while the site closes: an answer, want an error")
	}
	if got := site.Requests(); len(got) != 1 || got[0].End.IsZero() {
		t.Errorf("Requests() after Close = %+v, want one that ended", got)
	}
}

func TestOptions(t *testing.T) {
	if _, err := robotstest.Start(robotstest.Options{Pages: -1}); err == nil {
		t.Error("Start with -1 pages: no error")
	}
	site, err := robotstest.Start(robotstest.Options{Pages: 3, Unrecorded: true})
	if err != nil {
		t.Fatal(err)
	}
	defer site.Close()
	client := newClient(t, site.Transport())
	for path, want := range map[string]int{"/page/3": 200, "/page/4": 404, "/private/3": 200, "/private/0": 404} {
		if res, _ := get(t, client, "http://a.example"+path); res.StatusCode != want {
			t.Errorf("Get(%s) of 3 pages = %d, want %d", path, res.StatusCode, want)
		}
	}
	if got := site.Requests(); len(got) != 0 {
		t.Errorf("Requests() of an unrecorded site = %v, want none", got)
	}
}

package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// chain is a proxy with another proxy as its upstream proxy, which requires a password.
type chain struct {
	site          *robotstest.Site
	front, behind *server
	client        *http.Client
}

func newChain(t *testing.T) *chain {
	t.Helper()
	c := &chain{site: robotstest.New(t)}
	c.site.SetRobots("a.example", robotstest.Robots{Body: "User-agent: *\nDisallow: /private/\n"})
	dir := t.TempDir()
	htpasswd := writeHtpasswd(t, dir, "front", "s3cr3t")
	c.behind = startIn(t, filepath.Join(dir, "behind"), siteConfig(c.site)+"auth: {htpasswd_file: "+htpasswd+", required: true}\n")
	credentials := writeFile(t, dir, "credentials", "front:s3cr3t\n")
	c.front = startIn(t, filepath.Join(dir, "front"), c.config(credentials))
	c.trust(t)
	return c
}

// config returns the configuration of the first proxy.
func (c *chain) config(credentials string) string {
	return fmt.Sprintf(`egress:
  allow_addresses: [127.0.0.0/8]
  resolve: {a.example: 127.0.0.1}
  ca_file: %s
  upstream_proxy: http://%s
  upstream_proxy_credentials_file: %s
`, c.behind.ca, c.behind.proxy, credentials)
}

// trust returns a client of the first proxy that trusts its CA.
func (c *chain) trust(t *testing.T) {
	t.Helper()
	pem, err := os.ReadFile(c.front.ca)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	c.client = &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: c.front.proxy}), TLSClientConfig: &tls.Config{RootCAs: roots},
	}}
	t.Cleanup(c.client.CloseIdleConnections)
}

func writeFile(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// writeHtpasswd writes a file with one user and a cheap hash.
func writeHtpasswd(t *testing.T, dir, user, password string) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, dir, "htpasswd", user+":"+string(hash)+"\n")
}

func startIn(t *testing.T, dir, config string) *server {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := startServer(filepath.Join(dir, "data"), os.Environ(), "--config", writeFile(t, dir, "config.yaml", config))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.cmd.Process.Kill()
		s.cmd.Wait()
	})
	return s
}

// get returns the status of a page, and the reason if it is not 200.
func (c *chain) get(t *testing.T, scheme, path string) string {
	t.Helper()
	port := map[string]int{"http": c.site.Port(), "https": c.site.TLSPort()}[scheme]
	resp, err := c.client.Get(fmt.Sprintf("%s://a.example:%d%s", scheme, port, path))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("Robotsproxy-Reason")))
}

// Two proxies in a chain, with http and with https between them: the second accepts the credentials in the first one's
// file, which appear nowhere else, and after the second has ended, nothing bypasses it.
func TestUpstreamProxy(t *testing.T) {
	c := newChain(t)
	for _, scheme := range []string{"http", "https"} {
		if got := c.get(t, scheme, "/page/1"); got != "200" {
			t.Errorf("%s: an allowed page: %s", scheme, got)
		}
		if got := c.get(t, scheme, "/private/1"); got != "403 robots" {
			t.Errorf("%s: a disallowed page: %s", scheme, got)
		}
	}
	for _, arrived := range c.site.Requests() {
		if arrived.Target == "/page/1" && len(arrived.Header["Via"]) != 2 {
			t.Errorf("%s did not come through both proxies: %v", arrived.Target, arrived.Header)
		}
	}
	asked := len(c.site.Requests())
	if err := c.behind.stop(); err != nil {
		t.Error(err)
	}
	for _, scheme := range []string{"http", "https"} {
		if got := c.get(t, scheme, "/page/2"); got != "502 upstream" {
			t.Errorf("%s: without the upstream proxy: %s", scheme, got)
		}
	}
	if got := len(c.site.Requests()); got != asked {
		t.Errorf("%d requests came past the upstream proxy", got-asked)
	}
	if err := c.front.stop(); err != nil {
		t.Error(err)
	}
	for _, s := range []*server{c.front, c.behind} {
		records, err := os.ReadFile(filepath.Join(s.dir, "audit.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		for what, text := range map[string]string{"log": s.log.String(), "records": string(records), "command line": strings.Join(s.cmd.Args, " ")} {
			if strings.Contains(text, "s3cr3t") || strings.Contains(text, "ZnJvbnQ6czNjcjN0") {
				t.Errorf("the %s holds the password:\n%s", what, text)
			}
		}
	}
}

// Wrong credentials for the upstream proxy are not a failure of a site: after they are corrected, a restart finds no
// trace.
func TestUpstreamCredentialsAreMended(t *testing.T) {
	c := newChain(t)
	if err := c.front.stop(); err != nil {
		t.Error(err)
	}
	dir := t.TempDir()
	for _, try := range []struct{ credentials, want string }{{"front:wrong", "503 robots-unreachable"}, {"front:s3cr3t", "200"}} {
		c.front = startIn(t, dir, c.config(writeFile(t, dir, "credentials", try.credentials)))
		c.trust(t)
		for _, scheme := range []string{"http", "https"} {
			if got := c.get(t, scheme, "/page/1"); got != try.want {
				t.Errorf("%s with %s: %s, want %s", scheme, try.credentials, got, try.want)
			}
		}
		if err := c.front.stop(); err != nil {
			t.Error(err)
		}
	}
}

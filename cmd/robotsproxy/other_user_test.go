//go:build unix

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// otherUser runs the program as a user that is neither root nor the owner of any file.
type otherUser struct {
	program string
	home    string
}

const otherUID = 65533

func newOtherUser(t *testing.T) *otherUser {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can run programs as another user")
	}
	if _, err := exec.LookPath("setpriv"); err != nil {
		t.Skip("setpriv is not installed")
	}
	dir, err := os.MkdirTemp("", "other-user") // that of t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	u := &otherUser{program: filepath.Join(dir, "robotsproxy"), home: filepath.Join(dir, "home")}
	program, err := os.ReadFile(binaryPath)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.Chmod(dir, 0o755), os.WriteFile(u.program, program, 0o755), os.Mkdir(u.home, 0o700), os.Chown(u.home, otherUID, otherUID),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return u
}

// run returns the output of a command and its messages.
func (u *otherUser) run(command string, args ...string) (out, messages string, err error) {
	id := fmt.Sprint(otherUID)
	cmd := exec.Command("setpriv", append([]string{"--reuid", id, "--regid", id, "--clear-groups", command}, args...)...)
	cmd.Env = []string{"HOME=" + u.home, "PATH=" + os.Getenv("PATH")}
	cmd.Dir = "/"
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

// A crawler of another user trusts the CA of the running proxy: env and run put it into that user's cache folder. The
// data folder of that user gets no CA.
func TestOtherUsers(t *testing.T) {
	u := newOtherUser(t)
	site := robotstest.New(t)
	site.SetRobots("a.example", robotstest.Robots{Body: "User-agent: *\nDisallow: /private/\n"})
	s := startSite(t, site, "\n  resolve: {a.example: 127.0.0.1}\n")
	page := fmt.Sprintf("https://a.example:%d/page/1", site.TLSPort())
	cache := filepath.Join(u.home, ".cache", "robotsproxy")
	fingerprint := regexp.MustCompile(`SHA-256 \S+`).FindString(s.log.String())
	check := func(out, messages string, err error) {
		t.Helper()
		if err != nil || !strings.Contains(messages, fingerprint) || !strings.Contains(messages, "the CA comes from http://") {
			t.Fatalf("%v: %q; want the CA with %s", err, messages, fingerprint)
		}
		if !strings.Contains(out, "SSL_CERT_FILE='"+cache) {
			t.Fatalf("no bundle in the cache folder: %s", out)
		}
		crawl, messages, err := u.run("sh", "-c", out+"\ncurl -sS -o /dev/null -w '%{http_code}' "+page)
		if err != nil || crawl != "200" {
			t.Errorf("curl: %q, %v: %s", crawl, err, messages)
		}
		if info, err := os.Stat(cache); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the cache folder: %v, %v; want mode 0700", info, err)
		}
		if _, err := os.Stat(filepath.Join(u.home, ".local", "state", "robotsproxy", "ca.pem")); err == nil {
			t.Error("the user has a CA that no proxy uses")
		}
	}
	t.Run("no CA, by listen", func(*testing.T) { check(u.run(u.program, "env", "--listen", s.proxy, "--admin-listen", "127.0.0.1:1")) })
	t.Run("no CA, by admin.listen", func(*testing.T) {
		out, messages, err := u.run(u.program, "env", "--listen", "127.0.0.1:1", "--admin-listen", s.admin)
		check(strings.ReplaceAll(out, "127.0.0.1:1'", s.proxy+"'"), messages, err)
	})
	t.Run("no CA, by URL", func(*testing.T) { check(u.run(u.program, "env", "--listen", s.proxy, "--admin", "http://"+s.admin)) })
	t.Run("data folder of root", func(*testing.T) { check(u.run(u.program, "env", "--listen", s.proxy, "--data-dir", s.dir)) })
	t.Run("run", func(t *testing.T) {
		config := filepath.Join(filepath.Dir(u.program), "config.yaml")
		text := fmt.Sprintf("listen: %s\nadmin: {listen: %s}\ndata_dir: %s\n", s.proxy, s.admin, s.dir)
		if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		out, messages, err := u.run(u.program, "run", "--config", config, "--", "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", page)
		if err != nil || out != "200" || !strings.Contains(messages, "curl runs through the proxy at "+s.proxy) {
			t.Errorf("run: %q, %v: %s", out, err, messages)
		}
	})
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if _, messages, err := u.run(u.program, "env", "--listen", s.proxy, "--admin-listen", s.admin, "--data-dir", s.dir); err == nil || !strings.Contains(messages, "no robotsproxy that could give its CA answers at") {
		t.Errorf("without a running proxy: %v, %q", err, messages)
	}
}

// With an own CA, that counts; a proxy with another CA is named.
func TestEnvWarnsOfAnotherCA(t *testing.T) {
	s := startSite(t, robotstest.New(t), "")
	home := t.TempDir()
	env := func(args ...string) string {
		cmd := exec.Command(binaryPath, append([]string{"env", "--data-dir", filepath.Join(home, "data")}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CACHE_HOME=")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	if out := env("--listen", "127.0.0.1:1", "--admin-listen", "127.0.0.1:2"); strings.Contains(out, "CA") && strings.Contains(out, "warning") {
		t.Errorf("without a proxy: %s", out)
	}
	out := env("--listen", s.proxy)
	if !strings.Contains(out, "has another CA") || !strings.Contains(out, "robotsproxy env --admin http://"+s.proxy) || !strings.Contains(out, "SSL_CERT_FILE='"+filepath.Join(home, "data")) {
		t.Errorf("beside a proxy with another CA: %s", out)
	}
	if out := env("--listen", s.proxy, "--admin", "http://"+s.proxy); !strings.Contains(out, "SSL_CERT_FILE='"+filepath.Join(home, ".cache", "robotsproxy")) {
		t.Errorf("with that proxy named: %s", out)
	}
}

// What is not a list of CAs is not trusted.
func TestFetchedCAs(t *testing.T) {
	leaf := robotstest.New(t)
	for _, row := range []struct{ name, body, want string }{
		{"empty", "", "has no certificate"},
		{"a page", "<html>", "not a list of PEM certificates"},
		{"a key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "not a list of PEM certificates"},
		{"garbage in PEM", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "malformed"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, row.body) }))
		base, err := adminBase(nil, server.URL)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fetchCA(t.Context(), base); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
		server.Close()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	redirect := &http.Server{Handler: http.RedirectHandler(fmt.Sprintf("http://127.0.0.1:%d/", leaf.Port()), http.StatusFound)}
	go redirect.Serve(l)
	defer redirect.Close()
	base, _ := adminBase(nil, "http://"+l.Addr().String())
	if _, err := fetchCA(t.Context(), base); err == nil || !strings.Contains(err.Error(), "302") {
		t.Errorf("a redirect: %v, want an error with its status", err)
	}
}

// The key of a CA may be a file of root that the group of the proxy can read, as Kubernetes mounts secrets. Nobody else may
// read it.
func TestKeyOfRoot(t *testing.T) {
	u := newOtherUser(t)
	dir := filepath.Join(u.home, "ca")
	if out, messages, err := u.run(u.program, "ca", "show", "--data-dir", dir); err != nil {
		t.Fatalf("%v: %s%s", err, out, messages)
	}
	key := filepath.Join(dir, "ca-key.pem")
	config := filepath.Join(filepath.Dir(u.program), "config.yaml")
	text := fmt.Sprintf("intercept: {ca_cert: %q, ca_key: %q}\n", filepath.Join(dir, "ca.pem"), key)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		owner int
		mode  os.FileMode
		want  string
	}{
		{0, 0o440, ""}, {0, 0o640, ""}, {0, 0o444, "mode 0444"}, {0, 0o660, "mode 0660"}, {otherUID, 0o440, "mode 0440"},
	} {
		if err := cmp.Or(os.Chown(key, row.owner, otherUID), os.Chmod(key, row.mode)); err != nil {
			t.Fatal(err)
		}
		_, messages, err := u.run(u.program, "ca", "show", "--config", config)
		if (err == nil) != (row.want == "") || !strings.Contains(messages, row.want) {
			t.Errorf("a key of the user %d with mode %o: %v, %q, want %q", row.owner, row.mode, err, messages, row.want)
		}
	}
}

package clientenv

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"software.sslmate.com/src/go-pkcs12"
)

// clean removes the user's settings from the environment and the system's roots, and returns a home directory.
func clean(t *testing.T) (home string) {
	t.Helper()
	home = t.TempDir()
	t.Setenv("HOME", home)
	for _, name := range []string{"SSL_CERT_FILE", "WGETRC", "JAVA_TOOL_OPTIONS"} {
		t.Setenv(name, "")
	}
	roots := rootFiles
	rootFiles = nil
	t.Cleanup(func() { rootFiles = roots })
	return home
}

func newCertificate(t *testing.T, name string) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func encode(all ...*x509.Certificate) []byte {
	var b bytes.Buffer
	for _, c := range all {
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
	}
	return b.Bytes()
}

func write(t *testing.T, path string, data []byte) string {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, elem ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// names returns the common names of the bundle and of Java's trust store in dir.
func names(t *testing.T, dir string) (bundle, store []string) {
	t.Helper()
	for block, rest := pem.Decode([]byte(read(t, dir, bundleFile))); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		bundle = append(bundle, cert.Subject.CommonName)
	}
	all, err := pkcs12.DecodeTrustStore([]byte(read(t, dir, javaFile)), javaPassword)
	if err != nil {
		t.Fatal(err)
	}
	for _, cert := range all {
		store = append(store, cert.Subject.CommonName)
	}
	return bundle, store
}

func checkNames(t *testing.T, dir string, want ...string) {
	t.Helper()
	bundle, store := names(t, dir)
	if !slices.Equal(bundle, want) || !slices.Equal(store, want) {
		t.Errorf("%s holds %q, %s %q, want %q in both", bundleFile, bundle, javaFile, store, want)
	}
}

func mustWrite(t *testing.T, o Options) map[string]string {
	t.Helper()
	vars, err := Write(o)
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]string)
	for _, v := range vars {
		values[v.Name] = v.Value
	}
	return values
}

// TestRoots checks that the bundles keep the roots that programs trust without the proxy.
func TestRoots(t *testing.T) {
	home := clean(t)
	dir, ca := filepath.Join(home, "data"), newCertificate(t, "CA")
	o := Options{Listen: "127.0.0.1:3128", CA: encode(ca), Dir: dir}
	values := mustWrite(t, o)
	checkNames(t, dir, "CA")

	rootFiles = []string{filepath.Join(home, "none"), write(t, filepath.Join(home, "system.pem"), encode(newCertificate(t, "system")))}
	t.Setenv("SSL_CERT_FILE", values["SSL_CERT_FILE"]) // the shell that called env calls it again
	mustWrite(t, o)
	checkNames(t, dir, "system", "CA")

	withoutNewline := bytes.TrimSpace(encode(newCertificate(t, "user"), newCertificate(t, "user 2")))
	t.Setenv("SSL_CERT_FILE", write(t, filepath.Join(home, "user.pem"), withoutNewline))
	mustWrite(t, o)
	checkNames(t, dir, "user", "user 2", "CA")
}

func TestRefresh(t *testing.T) {
	home := clean(t)
	dir, old, next := filepath.Join(home, "data"), newCertificate(t, "old"), newCertificate(t, "next")
	if err := Refresh(dir, []*x509.Certificate{old}, encode(next)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("Refresh without clients made %s: %v", dir, err)
	}
	t.Setenv("SSL_CERT_FILE", write(t, filepath.Join(home, "user.pem"), encode(newCertificate(t, "user"))))
	mustWrite(t, Options{Listen: "127.0.0.1:3128", CA: encode(old), Dir: dir})
	for _, step := range []struct {
		ca   []byte
		want []string
	}{
		{encode(old, next), []string{"user", "old", "next"}},
		{encode(next), []string{"user", "next"}},
	} {
		if err := Refresh(dir, []*x509.Certificate{old, next}, step.ca); err != nil {
			t.Fatal(err)
		}
		checkNames(t, dir, step.want...)
	}
}

// TestWgetrc checks that the user's settings come first, and that a second call does not repeat them.
func TestWgetrc(t *testing.T) {
	home := clean(t)
	dir, private := filepath.Join(home, "data"), filepath.Join(home, "private")
	write(t, filepath.Join(home, ".wgetrc"), []byte("http_proxy = http://127.0.0.1:1"))
	o := Options{Listen: ":3128", CA: encode(newCertificate(t, "CA")), Dir: dir}
	want := "http_proxy = http://127.0.0.1:1\nuse_proxy = on\nhttp_proxy = http://127.0.0.1:3128/\nhttps_proxy = http://127.0.0.1:3128/\n" +
		"ca_certificate = " + filepath.Join(dir, bundleFile) + "\n"
	for call := range 2 {
		t.Setenv("WGETRC", mustWrite(t, o)["WGETRC"])
		if got := read(t, dir, wgetrcFile); got != want {
			t.Errorf("call %d wrote %q, want %q", call+1, got, want)
		}
	}
	o.Listen, o.WgetDir = "127.0.0.1:4000", private
	if got := mustWrite(t, o)["WGETRC"]; got != filepath.Join(private, wgetrcFile) {
		t.Errorf("WGETRC = %s, want it in %s", got, private)
	}
	if got := read(t, dir, wgetrcFile); got != want {
		t.Errorf("a call with WgetDir changed the file in Dir to %q", got)
	}
	t.Setenv("WGETRC", write(t, filepath.Join(home, "own"), []byte("quiet = on")))
	mustWrite(t, o)
	if got := read(t, private, wgetrcFile); !strings.HasPrefix(got, "quiet = on\nuse_proxy = on\n") {
		t.Errorf("with the user's WGETRC it is %q", got)
	}
}

func TestJavaOptions(t *testing.T) {
	clean(t)
	const want = `-Xmx1g -Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=3128 -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=3128 ` +
		`"-Djavax.net.ssl.trustStore=/data of mine/truststore.p12" -Djavax.net.ssl.trustStoreType=PKCS12 -Djavax.net.ssl.trustStorePassword=changeit`
	t.Setenv("JAVA_TOOL_OPTIONS", "-Xmx1g")
	for range 2 {
		got := javaOptions("127.0.0.1:3128", "/data of mine")
		if got != want {
			t.Errorf("javaOptions = %s, want %s", got, want)
		}
		t.Setenv("JAVA_TOOL_OPTIONS", got)
	}
}

func TestDialAddress(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:3128": "127.0.0.1:3128", "10.0.0.1:80": "10.0.0.1:80", "proxy.example:1": "proxy.example:1", "[2001:db8::1]:80": "[2001:db8::1]:80",
		":3128": "127.0.0.1:3128", "0.0.0.0:3128": "127.0.0.1:3128", "[::]:3128": "127.0.0.1:3128", "127.0.0.1": "", "": "",
	} {
		if got, err := DialAddress(listen); got != want || (err != nil) != (want == "") {
			t.Errorf("DialAddress(%q) = %q, %v, want %q", listen, got, err, want)
		}
	}
}

func TestReplaced(t *testing.T) {
	vars := []Variable{{"http_proxy", "a"}, {"HTTP_PROXY", "a"}, {"https_proxy", "a"}, {"SSL_CERT_FILE", "a"}}
	for name, value := range map[string]string{"http_proxy": "b", "HTTP_PROXY": "a", "https_proxy": "", "SSL_CERT_FILE": "b"} {
		t.Setenv(name, value)
	}
	if got := Replaced(vars); !slices.Equal(got, []string{"http_proxy"}) {
		t.Errorf("Replaced = %q, want http_proxy", got)
	}
}

// TestAssignment lets a real shell evaluate a value that would run a command if it were not quoted.
func TestAssignment(t *testing.T) {
	v := Variable{"V", "a b'c\"$(exit 1)`exit 1`\\\n#"}
	for shell, want := range map[string]string{
		"fish": "set -gx V 'a b\\'c\"$(exit 1)`exit 1`\\\\\n#'",
		"pwsh": "$env:V = 'a b''c\"$(exit 1)`exit 1`\\\n#'",
	} {
		format, err := Assignment(shell)
		if err != nil {
			t.Fatal(err)
		}
		if got := format(v); got != want {
			t.Errorf("%s: %s, want %s", shell, got, want)
		}
	}
	format, err := Assignment("sh")
	if err != nil {
		t.Fatal(err)
	}
	got, err := exec.Command("sh", "-c", format(v)+"\nsh -c 'printf %s \"$V\"'").CombinedOutput()
	if err != nil || string(got) != v.Value {
		t.Errorf("sh: V = %q, %v, want %q", got, err, v.Value)
	}
	if _, err := Assignment("csh"); err == nil || !strings.Contains(err.Error(), "csh") {
		t.Errorf("csh: %v, want an error that names it", err)
	}
	for _, shell := range Shells() {
		if _, err := Assignment(shell); err != nil {
			t.Errorf("Shells names %s: %v", shell, err)
		}
	}
}

// TestSecureProxy checks that every client is told the scheme of a proxy with TLS, so that none sends it anything in
// the clear: wget says that it cannot use https.
func TestSecureProxy(t *testing.T) {
	home := clean(t)
	dir := filepath.Join(home, "data")
	values := mustWrite(t, Options{Listen: "127.0.0.1:3128", TLS: true, CA: encode(newCertificate(t, "CA")), Dir: dir})
	const proxy = "https://127.0.0.1:3128"
	for _, name := range []string{"http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"} {
		if values[name] != proxy {
			t.Errorf("%s = %q, want %q", name, values[name], proxy)
		}
	}
	if text := read(t, dir, wgetrcFile); !strings.Contains(text, "\nhttp_proxy = "+proxy+"/\nhttps_proxy = "+proxy+"/\n") {
		t.Errorf("wget is told %q", text)
	}
}

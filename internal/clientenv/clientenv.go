// Package clientenv writes the files and environment variables by which other programs send their requests through a
// proxy and trust its CA.
//
//	vars, err := clientenv.Write(clientenv.Options{Listen: "127.0.0.1:3128", CA: pem, Dir: dataDir})
//	...
//	for _, v := range vars {
//		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
//	}
//
// Write is all that a new client needs. After the CA changed, Refresh updates the files of existing clients; their
// variables stay valid, since they hold only addresses and paths. Write keeps the user's own settings (SSL_CERT_FILE,
// wgetrc, JAVA_TOOL_OPTIONS), which it finds in this process's environment, and skips values that an earlier call set.
//
// The package changes no trust store of the system and starts no program.
package clientenv

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// Options describe a proxy to its clients.
type Options struct {
	Listen  string // the proxy's listener, host:port
	TLS     bool   // the listener speaks TLS, which neither wget nor Java can use
	CA      []byte // the certificates that clients must trust, PEM
	Dir     string // the folder of the CA bundle and Java's trust store; proxies with the same CA can share it
	WgetDir string // the folder of wget's configuration, which names Listen; if empty, Dir
}

// Variable is one environment variable.
type Variable struct{ Name, Value string }

// noProxy exempts loopback addresses: a crawler's own webdriver or database is not to be judged or paced.
const noProxy = "localhost,127.0.0.1,::1"

// Write writes the CA bundle, Java's trust store and wget's configuration. It returns the variables that name these
// files and the proxy, in the order in which they are to be shown.
func Write(o Options) ([]Variable, error) {
	address, err := DialAddress(o.Listen)
	if err != nil {
		return nil, err
	}
	if err := writeBundles(o.Dir, systemRoots(), o.CA); err != nil {
		return nil, err
	}
	wgetrc := filepath.Join(cmp.Or(o.WgetDir, o.Dir), wgetrcFile)
	proxy, bundle := Scheme(o.TLS)+"://"+address, filepath.Join(o.Dir, bundleFile)
	if err := writeWgetrc(wgetrc, proxy, o.Dir); err != nil {
		return nil, err
	}
	return []Variable{
		{"http_proxy", proxy},
		{"HTTP_PROXY", proxy},
		{"https_proxy", proxy},
		{"HTTPS_PROXY", proxy},
		{"no_proxy", noProxy},
		{"NO_PROXY", noProxy},
		{"SSL_CERT_FILE", bundle},
		{"REQUESTS_CA_BUNDLE", bundle},
		{"CURL_CA_BUNDLE", bundle},
		{"NODE_EXTRA_CA_CERTS", bundle},
		{"NODE_USE_ENV_PROXY", "1"},
		{"GIT_SSL_CAINFO", bundle},
		{"AWS_CA_BUNDLE", bundle},
		{"WGETRC", wgetrc},
		{"JAVA_TOOL_OPTIONS", javaOptions(address, o.Dir)},
	}, nil
}

// Scheme returns the scheme of the URL of a proxy whose listener speaks TLS, or does not.
func Scheme(secure bool) string {
	if secure {
		return "https"
	}
	return "http"
}

// DialAddress returns the address at which this machine reaches a listener at listen: an empty or unspecified host
// becomes 127.0.0.1.
func DialAddress(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("reading the listener's address: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// javaOptions returns the JVM options for the proxy at address. The user's own come first; those of an earlier call are
// left out.
func javaOptions(address, dir string) string {
	host, port, _ := net.SplitHostPort(address) // DialAddress joined it
	const first = "-Dhttp.proxyHost="
	user, _, _ := strings.Cut(os.Getenv("JAVA_TOOL_OPTIONS"), first)
	options := fmt.Sprintf(first+`%[1]s -Dhttp.proxyPort=%[2]s -Dhttps.proxyHost=%[1]s -Dhttps.proxyPort=%[2]s `+
		`"-Djavax.net.ssl.trustStore=%[3]s" -Djavax.net.ssl.trustStoreType=PKCS12 -Djavax.net.ssl.trustStorePassword=%[4]s`,
		host, port, filepath.Join(dir, javaFile), javaPassword)
	return strings.TrimSpace(strings.TrimSpace(user) + " " + options)
}

// Replaced returns the names of the proxy variables in vars that this process's environment sets to another value.
func Replaced(vars []Variable) (names []string) {
	for _, v := range vars {
		old := os.Getenv(v.Name)
		if old != "" && old != v.Value && strings.Contains(strings.ToLower(v.Name), "proxy") {
			names = append(names, v.Name)
		}
	}
	return names
}

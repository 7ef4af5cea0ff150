package proxy

import (
	"bytes"
	"html/template"
	"net"
	"net/http"
	"net/netip"

	"github.com/robotsproxy/robotsproxy/certs"
	"github.com/robotsproxy/robotsproxy/egress"
	"github.com/robotsproxy/robotsproxy/origin"
)

// Onboarding is what a person sees who opens the proxy's own address, or robots.proxy through it: what this is,
// how a crawler is sent through it, the certificates to trust and the script for browsers. Whoever asks from this machine
// is told the flags of here, by which its commands find this proxy; it may be nil.
func Onboarding(ca *certs.Authority, here func() Flags) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		page := welcomed{Proxy: reachedAt(r)}
		if here != nil && fromHere(r) {
			page.Flags = here()
		}
		welcome(w, page, ca)
	})
	mux.HandleFunc("GET /ca.pem", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-x509-ca-cert")
		w.Header().Set("Content-Disposition", `attachment; filename="robotsproxy-ca.pem"`)
		_, _ = w.Write(ca.PEM())
	})
	mux.HandleFunc("GET /proxy.pac", func(w http.ResponseWriter, r *http.Request) { WritePAC(w, reachedAt(r)) })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, notHere, http.StatusNotFound) })
	return mux
}

// notHere is for a program that takes the proxy for the site.
const notHere = `404 Not a page of robotsproxy

This is the proxy itself. A request for a site names it whole (GET http://a.example/page), as programs do that are told of
a proxy. GET / tells how.`

// Flags are those that a command needs to find a proxy on the same machine, each with a space in front.
type Flags struct {
	Data   string // of its configuration and its data
	Listen string // of its address, which "env" needs too
}

// fromHere reports whether r comes from this machine, and not from a page of another site whose name was made to lead here
// (DNS rebinding). Nobody else needs to know its folders.
func fromHere(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && egress.IsLocal(from.Addr()) && isOurName(r.Host)
}

// isOurName reports whether a Host cannot be a name of somebody else's.
func isOurName(authority string) bool {
	host, _, err := origin.SplitAuthority(authority)
	if err != nil {
		return false
	}
	_, err = netip.ParseAddr(host)
	return err == nil || host == "localhost" || host == onboarding.Host()
}

// welcomed is what the page tells.
type welcomed struct {
	Proxy, Host, Port string
	Flags             Flags
	CAs               []trusted
}

type trusted struct{ Name, SHA256, From string }

func welcome(w http.ResponseWriter, page welcomed, ca *certs.Authority) {
	page.Host, page.Port, _ = net.SplitHostPort(page.Proxy)
	all, err := ca.CAs()
	for _, c := range all {
		if c.Role == certs.Previous {
			continue
		}
		t := trusted{Name: c.Certificate.Subject.CommonName, SHA256: certs.Fingerprint(c.Certificate)}
		if c.Role == certs.Next {
			t.From = c.From.UTC().Format("2006-01-02 15:04 UTC")
		}
		page.CAs = append(page.CAs, t)
	}
	var b bytes.Buffer
	if err == nil {
		err = welcomePage.Execute(&b, page)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(b.Bytes()) // a visitor who left is no fault
}

var welcomePage = template.Must(template.New("welcome").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>robotsproxy</title>
<style>
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:48rem;margin:3rem auto;padding:0 1.5rem}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin:2rem 0 .5rem}h3{font-size:1rem;margin:1.2rem 0 .3rem}
pre{font:14px/1.5 ui-monospace,monospace;background:#8881;border-radius:6px;padding:.7rem .9rem;margin:.3rem 0;overflow-x:auto}
code{font:14px ui-monospace,monospace;overflow-wrap:anywhere}small{opacity:.75}small code{font-size:12px}
</style></head><body>
<h1>This is robotsproxy</h1>
<p>A forward HTTP proxy that makes any crawler polite: each request is judged by the origin's robots.txt, paced by its Crawl-delay and recorded. It listens at <code>{{.Proxy}}</code>.</p>
<h2>On the machine where it runs</h2>
<pre>eval "$(robotsproxy env{{.Flags.Data}}{{.Flags.Listen}})"     # this shell and all that it starts
robotsproxy run{{.Flags.Data}} -- COMMAND    # one program, with a summary at the end
robotsproxy ca install{{.Flags.Data}}        # browsers, and what reads the system's trust store</pre>
<h2>Anywhere else</h2>
<p>Programs have to trust <a href="/ca.pem">the CA certificate</a>, and to be told of the proxy. Most heed these variables:</p>
<pre>curl -o robotsproxy-ca.pem http://{{.Proxy}}/ca.pem
export http_proxy=http://{{.Proxy}} https_proxy=http://{{.Proxy}}</pre>
{{range .CAs}}<p>{{if .From}}From {{.From}} on another CA signs. It is in the same file: trust both.<br>{{end}}{{.Name}}<br><small>SHA-256 <code>{{.SHA256}}</code></small></p>
{{if .From}}<p>keytool and certutil read only the first certificate of a file. This writes each into one of its own, robotsproxy-ca-1.pem and robotsproxy-ca-2.pem; import both, by two names.</p>
<pre>awk '/BEGIN/ {n++} {print &gt; ("robotsproxy-ca-" n ".pem")}' robotsproxy-ca.pem</pre>
{{end}}{{end}}<p>Browsers can configure themselves by <a href="/proxy.pac">http://{{.Proxy}}/proxy.pac</a>.</p>
<h2>One by one</h2>
<p>Where no proxy is named here, the variables above name it. Where it asks for a password, write <code>http://USER:PASSWORD@{{.Proxy}}</code>.</p>
<h3>curl</h3>
<pre>curl --proxy http://{{.Proxy}} --cacert robotsproxy-ca.pem https://a.example/</pre>
<h3>wget</h3>
<pre>wget -e http_proxy={{.Proxy}} -e https_proxy={{.Proxy}} \
  --ca-certificate=robotsproxy-ca.pem https://a.example/</pre>
<h3>Python: requests, urllib</h3>
<pre>REQUESTS_CA_BUNDLE=robotsproxy-ca.pem SSL_CERT_FILE=robotsproxy-ca.pem python3 crawl.py</pre>
<h3>Scrapy</h3>
<pre>http_proxy=http://{{.Proxy}} https_proxy=http://{{.Proxy}} scrapy crawl news</pre>
<h3>Node 24 and newer</h3>
<pre>NODE_USE_ENV_PROXY=1 NODE_EXTRA_CA_CERTS=robotsproxy-ca.pem node crawl.js</pre>
<h3>Go</h3>
<pre>SSL_CERT_FILE=robotsproxy-ca.pem ./crawl</pre>
<h3>Java</h3>
<pre>keytool -importcert -noprompt -alias robotsproxy -file robotsproxy-ca.pem \
  -keystore robotsproxy.p12 -storepass changeit
java -Dhttp.proxyHost={{.Host}} -Dhttp.proxyPort={{.Port}} \
  -Dhttps.proxyHost={{.Host}} -Dhttps.proxyPort={{.Port}} \
  -Djavax.net.ssl.trustStore=robotsproxy.p12 \
  -Djavax.net.ssl.trustStorePassword=changeit Crawl</pre>
<h3>Chromium</h3>
<pre>mkdir -p ~/.pki/nssdb    # certutil is in libnss3-tools
certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n robotsproxy -i robotsproxy-ca.pem
chromium --proxy-server=http://{{.Proxy}}
chromium --proxy-pac-url=http://{{.Proxy}}/proxy.pac    # or so</pre>
</body></html>
`))

package proxy

import (
	"bytes"
	"html/template"
	"net"
	"net/http"
)

// Onboarding is what a person sees who opens the proxy's own address, or http://robots.proxy/ through it: what this is,
// how a crawler is sent through it, and the CA's certificate.
func Onboarding(caPEM []byte) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		var b bytes.Buffer
		address := r.Host
		if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && r.URL.IsAbs() {
			address = local.String() // asked through the proxy, by another name than its own
		}
		if err := welcome.Execute(&b, address); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		h.Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(b.Bytes()) // a visitor who left is no fault
	})
	mux.HandleFunc("GET /ca.pem", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-x509-ca-cert")
		w.Header().Set("Content-Disposition", `attachment; filename="robotsproxy-ca.pem"`)
		_, _ = w.Write(caPEM)
	})
	return mux
}

var welcome = template.Must(template.New("welcome").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>robotsproxy</title>
<style>
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:3rem auto;padding:0 1.5rem}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}
pre{font:14px/1.4 ui-monospace,monospace;background:#8881;border-radius:6px;padding:.8rem;overflow-x:auto}
</style></head><body>
<h1>This is robotsproxy</h1>
<p>A forward HTTP proxy that makes any crawler polite: each request is judged by the origin's robots.txt, paced by its Crawl-delay and recorded.</p>
<h2>On the machine where it runs</h2>
<pre>eval "$(robotsproxy env)"     # this shell and all that it starts
robotsproxy run -- COMMAND    # one program, with a summary at the end</pre>
<h2>Anywhere else</h2>
<p>Trust <a href="/ca.pem">the CA certificate</a>, and name the proxy:</p>
<pre>curl --proxy http://{{.}} --cacert robotsproxy-ca.pem https://a.example/
export http_proxy=http://{{.}} https_proxy=http://{{.}}
export REQUESTS_CA_BUNDLE=robotsproxy-ca.pem     # Python requests
export NODE_EXTRA_CA_CERTS=robotsproxy-ca.pem    # Node
chromium --proxy-server=http://{{.}}</pre>
</body></html>
`))

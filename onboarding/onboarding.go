// Package onboarding serves the pages and files that set up clients of the proxy.
//
//	http.Handle("/", onboarding.Handler(ca))
//
// Handler answers requests for the proxy itself: a page with set-up lines for each client, /ca.pem and /proxy.pac. CA
// and PAC are the handlers of these two files alone, for another listener.
//
// All of it is public: nothing names a user, a folder or a configured host. The package does not decide which requests
// are for the proxy itself.
package onboarding

import (
	"bytes"
	_ "embed" // the page
	"html/template"
	"net/http"

	"github.com/robotsproxy/robotsproxy/certs"
	"github.com/robotsproxy/robotsproxy/internal/style"
)

// Handler returns the handler of requests for the proxy itself. It names the proxy by the address at which the client
// reached it: the request's Host, or the local address of the connection if the request came through the proxy. Such
// requests have an absolute URL.
func Handler(ca *certs.Authority) http.Handler { return handler("http", PAC(ownAddress), ca) }

// SecureHandler is Handler for a proxy that speaks TLS to its clients.
func SecureHandler(ca *certs.Authority) http.Handler {
	return handler("https", SecurePAC(ownAddress), ca)
}

func handler(scheme string, pac http.Handler, ca *certs.Authority) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { servePage(w, r, scheme, ca) })
	mux.HandleFunc("GET /copy.js", serveScript)
	mux.Handle("GET /ca.pem", CA(ca))
	mux.Handle("GET /proxy.pac", pac)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, notFound, http.StatusNotFound) })
	return mux
}

// notFound is read by the users of programs that send requests for a site as if the proxy were that site.
const notFound = `404 Not a page of robotsproxy

This is the proxy itself. A request for a site must contain the whole URL (GET http://a.example/page). Programs send it if
they are configured to use a proxy. GET / shows how.`

// CA returns the handler of /ca.pem: the certificates that clients must trust. During a rotation there are two.
func CA(ca *certs.Authority) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-x509-ca-cert") // which browsers offer to import
		w.Header().Set("Content-Disposition", `attachment; filename="robotsproxy-ca.pem"`)
		_, _ = w.Write(ca.PEM()) // the client may have left
	})
}

// page is the data of page.html.
type page struct {
	CSS     template.CSS
	Through bool   // the request came through the proxy
	Trusted bool   // over TLS, by a client that trusts the CA
	Scheme  string // of the proxy's URL
	Proxy   string // its address
	Clients []Client
	Try     string // a command that shows whether it works
	CAs     []certificate
}

type certificate struct {
	Name, SHA256 string
	From         string // when it begins to sign; empty if it does
	End          string
}

//go:embed page.html
var pageHTML string

var pageTemplate = template.Must(template.New("page").Parse(pageHTML))

// CopyScript makes the buttons beside the lines of a page copy them.
//
//go:embed copy.js
var CopyScript []byte

func serveScript(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(CopyScript) // the client may have left
}

// servePage writes the set-up page of the proxy, with URLs that have its scheme and the address that r reached.
func servePage(w http.ResponseWriter, r *http.Request, scheme string, ca *certs.Authority) {
	address := ownAddress(r)
	p := page{
		CSS: style.CSS, Scheme: scheme, Proxy: address, Through: r.URL.IsAbs(), Trusted: overOwnTLS(r), Clients: Clients(scheme, address),
		Try: "curl -I \\\n  --proxy " + scheme + "://" + address + " \\\n  --cacert robotsproxy-ca.pem \\\n  https://robots.proxy/",
	}
	var err error
	if p.CAs, err = certificates(ca); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, p); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src "+style.Source)
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(b.Bytes()) // the client may have left
}

// overOwnTLS reports whether r came over TLS with a certificate of the CA: for the name of these pages, not of the proxy.
func overOwnTLS(r *http.Request) bool { return r.TLS != nil && r.TLS.ServerName == "robots.proxy" }

// certificates returns the CAs that clients must trust.
func certificates(ca *certs.Authority) (shown []certificate, err error) {
	all, err := ca.CAs()
	for _, c := range all {
		if c.Role == certs.Previous {
			continue
		}
		s := certificate{
			Name: c.Certificate.Subject.CommonName, SHA256: certs.Fingerprint(c.Certificate), End: c.Certificate.NotAfter.UTC().Format("2 January 2006"),
		}
		if c.Role == certs.Next {
			s.From = c.From.UTC().Format("2006-01-02 15:04 UTC")
		}
		shown = append(shown, s)
	}
	return shown, err
}

package onboarding

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/robotsproxy/robotsproxy/origin"
)

// PAC returns the handler of /proxy.pac: the script by which a browser sends everything through the proxy at
// address(request), except for names of the browser's own machine. The script has no DIRECT as a second choice: a
// browser would use it if the proxy is down, and send requests that were not judged.
func PAC(address func(*http.Request) string) http.Handler { return pac("PROXY", address) }

// SecurePAC is PAC for a proxy that speaks TLS to its clients.
func SecurePAC(address func(*http.Request) string) http.Handler { return pac("HTTPS", address) }

func pac(keyword string, address func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-ns-proxy-autoconfig")
		w.Header().Set("Cache-Control", "no-store") // the address depends on the client
		fmt.Fprintf(w, script, keyword+" "+address(r))
	})
}

// script is a PAC script with the result for everything else.
const script = `function FindProxyForURL(url, host) {
  var name = host.toLowerCase();
  if (name === "localhost" || /\.localhost$/.test(name) || /^127(\.[0-9]+){3}$/.test(name) || /^\[?::1\]?$/.test(name)) {
    return "DIRECT";
  }
  return %q;
}
`

// ProxyAddress returns the address function of PAC on another listener of the machine of a proxy that listens at proxy.
// A client reaches a proxy that listens on all addresses by the host that it knows the machine by.
func ProxyAddress(proxy net.Addr) func(*http.Request) string {
	at, err := netip.ParseAddrPort(proxy.String())
	return func(r *http.Request) string {
		host, _, errHost := origin.SplitAuthority(r.Host)
		if err != nil || errHost != nil || !at.Addr().IsUnspecified() {
			return proxy.String()
		}
		return net.JoinHostPort(host, strconv.Itoa(int(at.Port())))
	}
}

// ownAddress returns the address at which the client of r reached the listener of r.
func ownAddress(r *http.Request) string {
	host, port, err := origin.SplitAuthority(r.Host)
	local, known := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if known && (r.URL.IsAbs() || err != nil) {
		return local.String()
	}
	if port == 0 {
		port = 80
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

package proxy

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/robotsproxy/robotsproxy/origin"
)

// PAC returns the script by which a browser configures itself: everything goes through the proxy at address (host:port),
// and only the names of the browser's own machine do not. There is no way around a proxy that is down: DIRECT as a second
// choice would send unjudged what could not be judged.
func PAC(address string) []byte {
	return fmt.Appendf(nil, `function FindProxyForURL(url, host) {
  var name = host.toLowerCase();
  if (name === "localhost" || /\.localhost$/.test(name) || /^127(\.[0-9]+){3}$/.test(name) || /^\[?::1\]?$/.test(name)) {
    return "DIRECT";
  }
  return %q;
}
`, "PROXY "+address)
}

// PACAddress returns the address at which a client reaches a proxy that listens at local, if it reached this machine by
// host. A listener of one address is reached by that one, one of all addresses by the name that the client knows.
func PACAddress(local net.Addr, host string) string {
	at, err := netip.ParseAddrPort(local.String())
	if err != nil || !at.Addr().IsUnspecified() {
		return local.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(int(at.Port())))
}

// WritePAC answers with the script for the proxy at address.
func WritePAC(w http.ResponseWriter, address string) {
	w.Header().Set("Content-Type", "application/x-ns-proxy-autoconfig")
	w.Header().Set("Cache-Control", "no-store") // it depends on who asks
	_, _ = w.Write(PAC(address))                // who left is no fault
}

// reachedAt returns the address by which r's client reached this proxy: the one that it named, or that of the connection
// if it came through the proxy by another name than its own, or named none that can be read.
func reachedAt(r *http.Request) string {
	host, port, err := origin.SplitAuthority(r.Host)
	local, known := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if known && (r.URL.IsAbs() || err != nil || host == onboarding.Host()) {
		return local.String()
	}
	if port == 0 {
		port = 80
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

//go:build unix

package proxy

import (
	"net/http"
	"syscall"
	"testing"
	"time"
)

// A request for which the proxy has no descriptor is refused as overload: the site is neither dead nor without a
// robots.txt, and the next request reaches it.
func TestWithoutDescriptors(t *testing.T) {
	var transport siteTransport
	r := newRig(t, func(o *Options) { transport = o.Transport.(siteTransport) })
	c := r.client(true)
	ask := func(url string) *http.Response {
		resp, _ := r.get(c, url)
		return resp
	}
	a := r.url("http", "/")
	ask("http://" + r.addr + "/") // now the client has a connection
	for _, step := range []string{"robots.txt", "page"} {
		withoutDescriptors(t, func() {
			resp := ask(a)
			if resp.StatusCode != 503 || resp.Header.Get("Robotsproxy-Reason") != "overload" || resp.Header.Get("Retry-After") == "" {
				t.Errorf("%s without a descriptor: %s, %v; want 503 overload", step, resp.Status, resp.Header)
			}
		})
		time.Sleep(1100 * time.Millisecond) // the file is fetched again after a second
		if resp := ask(a); resp.StatusCode != 200 {
			t.Errorf("%s afterwards: %s, %v; want 200", step, resp.Status, resp.Header)
		}
		transport.CloseIdleConnections()
	}
}

// withoutDescriptors calls f while the system grants this process no further descriptor.
func withoutDescriptors(t *testing.T, f func()) {
	t.Helper()
	var granted syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &granted); err != nil {
		t.Fatal(err)
	}
	none := granted
	none.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &granted); err != nil {
			t.Fatal(err)
		}
	}()
	f()
}

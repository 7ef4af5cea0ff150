package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/policy"
)

func TestClientNetwork(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1:80":                   "192.0.2.1",
		"[::ffff:192.0.2.1]:80":          "192.0.2.1",
		"[2001:db8:1:2:3:4:5:6]:80":      "2001:db8:1:2::",
		"[2001:db8:1:2:ffff::1]:80":      "2001:db8:1:2::",
		"[fe80::1:2%eth0]:80":            "fe80::",
		"[2001:db8:1:3:3:4:5:6]:1234":    "2001:db8:1:3::",
		"[2001:db8:1:2:3:4:5:6%lo]:1234": "2001:db8:1:2::",
	} {
		ap := netip.MustParseAddrPort(addr)
		tcp := &net.TCPAddr{IP: ap.Addr().AsSlice(), Port: int(ap.Port()), Zone: ap.Addr().Zone()}
		if got := clientNetwork(tcp).String(); got != want {
			t.Errorf("clientNetwork(%s) = %s, want %s", addr, got, want)
		}
	}
}

// limited starts a rig with limits. Its clients have one address.
func limited(t *testing.T, l Limits) *rig {
	return newRig(t, func(o *Options) { o.Limits = l })
}

// A client beyond a limit can read the refusal, whether it speaks first or not. The next client gets a slot that is
// given back.
func TestTooManyConnections(t *testing.T) {
	for name, limits := range map[string]Limits{"in all": {Connections: 2}, "of one client": {ConnectionsPerClient: 2}} {
		t.Run(name, func(t *testing.T) {
			r := limited(t, limits)
			first := r.raw("")
			r.raw("")
			r.eventually("two connections", func() bool { return r.server.Connections() == 2 })
			get := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: a.example\r\n\r\n", r.url("http", "/page/1"))
			for _, request := range []string{"", get, "CONNECT a.example:443 HTTP/1.1\r\n\r\n", get + strings.Repeat("x", 64<<10)} {
				conn := r.raw(request)
				all, err := io.ReadAll(conn) // up to the end: a reset would be an error
				if err != nil {
					t.Errorf("%.20q: %v", request, err)
				}
				checkOverload(t, string(all))
			}
			if len(r.site.Requests()) != 0 || r.server.Refused() != 4 {
				t.Errorf("%d requests reached the origin, %d connections were refused", len(r.site.Requests()), r.server.Refused())
			}
			first.Close()
			r.eventually("a free slot", func() bool { return r.server.Connections() == 1 })
			if resp, _ := r.get(r.client(true), r.url("http", "/page/1")); resp.StatusCode != 200 {
				t.Errorf("with a free slot: %s", resp.Status)
			}
		})
	}
}

func checkOverload(t *testing.T, answer string) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(answer)), nil)
	if err != nil {
		t.Fatalf("%q: %v", answer, err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || resp.Header.Get("Robotsproxy-Reason") != string(policy.ReasonOverload) ||
		!strings.Contains(resp.Header.Get("Proxy-Status"), "error=connection_limit_reached") || !resp.Close || !strings.Contains(string(body), "Too many") {
		t.Errorf("%s %v\n%s", resp.Status, resp.Header, body)
	}
}

// During a flood of rejected connections, accepted ones are served.
func TestFlood(t *testing.T) {
	r := limited(t, Limits{Connections: 1})
	c := r.client(true)
	r.get(c, r.url("http", "/page/1"))
	const flood = 3 * 256 // three times as many as limit.Listener lets linger
	for range flood {
		conn, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if resp, _ := r.get(c, r.url("http", "/page/2")); resp.StatusCode != 200 {
		t.Errorf("in a flood: %s", resp.Status)
	}
	r.eventually("the end of the flood", func() bool { return r.server.Refused() == flood })
	if n := r.server.Connections(); n != 1 {
		t.Errorf("%d connections are counted, want 1", n)
	}
}

func TestTooManyTunnels(t *testing.T) {
	r := limited(t, Limits{Tunnels: 1})
	c := r.client(true)
	r.get(c, r.url("https", "/page/1")) // and keeps its tunnel
	conn := r.raw("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n")
	all, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(all), "HTTP/1.1 503 overload: Too many tunnels are open.\r\n") {
		t.Fatalf("%q, %v", all, err)
	}
	checkOverload(t, string(all))
	if rec := r.last(2); rec.Reason != policy.ReasonOverload || rec.Decision != policy.Error || rec.Host != "a.example" || rec.Method != "CONNECT" {
		t.Errorf("record: %+v", rec)
	}
	if !strings.Contains(r.log.String(), "key=limits.tunnels limit=1") {
		t.Errorf("the log does not name the key: %s", r.log)
	}
	c.CloseIdleConnections()
	r.eventually("the end of the tunnel", func() bool { return r.server.Tunnels() == 0 })
	if resp, _ := r.get(c, r.url("https", "/page/1")); resp.StatusCode != 200 {
		t.Errorf("with room for a tunnel: %s", resp.Status)
	}
}

// However a CONNECT ends, its slots are given back.
func TestSlotsAreReleased(t *testing.T) {
	r := limited(t, Limits{Connections: 100, ConnectionsPerClient: 100, Tunnels: 100})
	for _, request := range []string{
		"CONNECT a.example HTTP/1.1\r\n\r\n",
		"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n",
		"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n\x16\x03\x01",
		"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\nSSH-2.0-x\r\n",
		"GET / HTTP/1.1\r\n",
		"",
	} {
		r.raw(request).Close()
	}
	last := r.client(true)
	r.get(last, r.url("http", "/page/1")) // comes behind all of them, which have been accepted then
	last.CloseIdleConnections()
	r.eventually("all slots", func() bool {
		return r.server.Connections() == 0 && r.server.tunnelLimit.InUse() == 0 && r.server.Tunnels() == 0
	})
}

// A connection without bytes, with too few, or with nonsense ends within the header time-out, inside and outside
// tunnels.
func TestSilence(t *testing.T) {
	r := newRig(t, func(o *Options) { o.HeaderTimeout = 300 * time.Millisecond })
	const connect = "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n"
	for name, data := range map[string]string{
		"nothing":                              "",
		"half a header":                        "GET http://a.example/ HTTP/1.1\r\nHost: a.exa",
		"a tunnel and nothing":                 connect, // as SMTP, FTP and SSH clients wait for the server
		"a tunnel and half a handshake":        connect + "\x16\x03\x01\x02\x00\x01",
		"a tunnel and half a header":           connect + "GET / HTTP/1.1\r\n",
		"a tunnel and SSH":                     connect + "SSH-2.0-OpenSSH_9.2\r\n",
		"a tunnel and zeros":                   connect + strings.Repeat("\x00", 64),
		"a tunnel and HTTP/2 in clear":         connect + "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"a tunnel and a handshake of nonsense": connect + "\x16\x03\x01\x00\x04abcd",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := io.Copy(io.Discard, r.raw(data)); err != nil { // raw gives up after 20 s
				t.Errorf("the connection did not end in good order: %v", err)
			}
		})
	}
	t.Cleanup(func() {
		r.eventually("all slots", func() bool { return r.server.Connections() == 0 && r.server.Tunnels() == 0 })
		if n := len(r.site.Requests()); n != 0 {
			t.Errorf("%d requests reached the origin", n)
		}
	})
}

func TestEndlessHeader(t *testing.T) {
	r := newRig(t, nil)
	conn := r.raw("GET " + r.url("http", "/page/1") + " HTTP/1.1\r\nHost: a.example\r\nX: ")
	go func() {
		for { // until the proxy has enough
			if _, err := io.WriteString(conn, strings.Repeat("x", 4096)); err != nil {
				return
			}
		}
	}()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge || !resp.Close {
		t.Errorf("%v, %v; want 431", resp, err)
	}
	if n := len(r.site.Requests()); n != 0 {
		t.Errorf("%d requests reached the origin", n)
	}
}

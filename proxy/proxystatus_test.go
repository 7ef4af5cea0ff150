package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"testing"
)

// statusRows are lines of Proxy-Status that an origin sends, and the lines that the client gets.
var statusRows = map[string]struct{ sent, want []string }{
	"ours":                    {[]string{"robotsproxy; error=http_request_denied"}, nil},
	"in capitals":             {[]string{"RobotsProxy; error=http_request_denied"}, nil},
	"as a string":             {[]string{`"ROBOTSPROXY"; error=http_request_denied`}, nil},
	"a string with spaces":    {[]string{`" robotsproxy ";details="x"`}, nil},
	"behind another":          {[]string{`other, robotsproxy; error=http_request_denied; details="robots.txt"`}, []string{"other"}},
	"before another":          {[]string{"robotsproxy;error=dns_error,cdn.example; received-status=200"}, []string{"cdn.example;received-status=200"}},
	"amid others":             {[]string{`a;details="x, robotsproxy", robotsproxy, b`}, []string{`a;details="x, robotsproxy", b`}},
	"in an inner list":        {[]string{"(a robotsproxy);error=dns_error, b"}, []string{"b"}},
	"on a second line":        {[]string{"other", "Robotsproxy"}, []string{"other"}},
	"no list, and ours":       {[]string{"robotsproxy; error=http_request_denied; details=robots.txt says no, sir"}, nil},
	"no list, ours in it":     {[]string{"other; ;, RobotsProxy"}, nil},
	"no list, ours disguised": {[]string{`"robots\proxy"; error=x`, "robots proxy; error=x", "\u2060robotsproxy"}, nil},
	"no list, of others":      {[]string{"an old proxy = 1"}, []string{"an old proxy = 1"}},
	"of others":               {[]string{`cdn.example;  received-status=200 , robotsproxy2; next-hop="robotsproxy"`}, []string{`cdn.example;  received-status=200 , robotsproxy2; next-hop="robotsproxy"`}},
}

// Members of an origin's Proxy-Status with the proxy's name do not pass in a hint or a trailer.
func TestForgedProxyStatus(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
			for name, row := range statusRows {
				r.site.SetPage("a.example", "/forged", func(w http.ResponseWriter, _ *http.Request) {
					w.Header()["Proxy-Status"] = row.sent
					w.WriteHeader(http.StatusEarlyHints)
					w.Header().Set("Trailer", "Proxy-Status, Checksum")
					io.WriteString(w, "body")
					w.Header()["Checksum"] = []string{"1"}
				})
				req, _ := http.NewRequest("GET", r.url(way.scheme, "/forged"), nil)
				var hinted http.Header
				req = req.WithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
					hinted = http.Header(h).Clone()
					return nil
				}}))
				resp, err := r.client(way.http1).Do(req)
				if err != nil {
					t.Fatal(err)
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				for part, h := range map[string]http.Header{"hint": hinted, "trailer": resp.Trailer} {
					if got := h["Proxy-Status"]; !slices.Equal(got, row.want) {
						t.Errorf("%s, %s: %q; want %q", name, part, got, row.want)
					}
				}
				if resp.Trailer.Get("Checksum") != "1" {
					t.Errorf("%s: trailer %v", name, resp.Trailer)
				}
			}
		})
	}
}

// The same holds for the header of a response. For a 429 the proxy adds received-status.
func TestForgedProxyStatusInAHeader(t *testing.T) {
	for name, row := range statusRows {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
			for _, status := range []int{200, 429} {
				authority := r.rawOrigin(func(conn net.Conn) { writeStatus(conn, status, row.sent) })
				want := slices.Clone(row.want)
				if status == 429 {
					want = append(want, "robotsproxy; received-status=429")
				}
				if got := r.rawGet(authority, "").Header["Proxy-Status"]; !slices.Equal(got, want) {
					t.Errorf("%d: %q; want %q", status, got, want)
				}
			}
		})
	}
}

// writeStatus writes a response with lines of Proxy-Status.
func writeStatus(w io.Writer, status int, lines []string) {
	fmt.Fprintf(w, "HTTP/1.1 %d X\r\n", status)
	for _, line := range lines {
		io.WriteString(w, "proxy-status: "+line+"\r\n")
	}
	io.WriteString(w, "Connection: close\r\nContent-Length: 0\r\n\r\n")
}

package http1

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// serveReasons serves requests whose path says what the handler does, and returns a connection to it.
func serveReasons(t *testing.T) (net.Conn, *bufio.Reader) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/set":
			From(r.Context()).SetReason(r.URL.Query().Get("reason"))
			if r.URL.Query().Has("hint") {
				w.WriteHeader(http.StatusEarlyHints)
			}
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w, strings.Repeat("HTTP/1.1 200 OK\r\n", 1000))
		case "/abort":
			From(r.Context()).SetReason("left over")
			c, _, _ := http.NewResponseController(w).Hijack()
			c.Close()
		default:
			io.Copy(io.Discard, r.Body)
			io.WriteString(w, "HTTP/1.1 404 as a body")
		}
	})}
	Install(srv)
	go srv.Serve(NewListener(l, Options{Refuse: func(net.Conn, *SyntaxError) {}}))
	t.Cleanup(func() { srv.Close() })
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, bufio.NewReader(c)
}

func TestSetReason(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, tt := range []struct{ name, reason, query, want string }{
		{"plain", "Disallowed+by+robots.txt+line+3", "", "403 Disallowed by robots.txt line 3"},
		{"after a 103", "Disallowed", "&hint", "403 Disallowed"},
		{"line breaks", "a%0d%0aSet-Cookie:+b", "", "403 a??Set-Cookie: b"},
		{"not ASCII", "caf%C3%A9", "", "403 caf?"},
		{"long", long, "", "403 " + long[:maxReason]},
		{"empty", "", "", "403 "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, r := serveReasons(t)
			for range 2 { // the reason is of one response only
				fmt.Fprintf(c, "GET /set?reason=%s%s HTTP/1.1\r\nHost: a\r\n\r\n", tt.reason, tt.query)
				checkResponse(t, r, tt.want, 17000)
				fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nok")
				checkResponse(t, r, "200 OK", 22)
			}
		})
	}
}

func checkResponse(t *testing.T, r *bufio.Reader, want string, length int) {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	for err == nil && resp.StatusCode < 200 {
		resp, err = http.ReadResponse(r, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if resp.Status != want || len(body) != length || err != nil {
		t.Errorf("the response is %q with %d bytes (%v), want %q with %d", resp.Status, len(body), err, want, length)
	}
}

// A Conn without a reason writes without an allocation.
func TestWriteAllocatesNothing(t *testing.T) {
	c := &Conn{Conn: discardConn{}}
	p := []byte("HTTP/1.1 200 OK\r\n\r\n")
	if n := testing.AllocsPerRun(100, func() { c.Write(p) }); n != 0 {
		t.Errorf("Write allocates %v times, want 0", n)
	}
}

type discardConn struct{ net.Conn }

func (discardConn) Write(p []byte) (int, error) { return len(p), nil }

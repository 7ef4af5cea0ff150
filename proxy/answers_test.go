package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/policy"
)

// rawOrigin answers every request with the same octets, and returns its authority. It reads no body.
func (r *rig) rawOrigin(answer func(net.Conn)) string {
	r.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					answer(conn)
				}
			}()
		}
	}()
	return fmt.Sprintf("a.example:%d", l.Addr().(*net.TCPAddr).Port)
}

const sound = "HTTP/1.1 200 OK\r\nConnection: close\r\n"

// What an origin answers comes to the client with one meaning, as 502, or as a body that visibly breaks off.
func TestAmbiguousAnswers(t *testing.T) {
	for _, row := range []struct {
		name, octets string
		status       int
		body         string // "..." where it breaks off
	}{
		{"sound", sound + "Content-Length: 2\r\n\r\nhi", 200, "hi"},
		{"until the end", sound + "\r\nhi", 200, "hi"},
		{"Content-Length and chunks", sound + "Content-Length: 100\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 200, "hi"},
		{"two lengths", sound + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nhi!", 502, ""},
		{"one length twice", sound + "Content-Length: 2\r\nContent-Length: 2\r\n\r\nhi", 200, "hi"},
		{"a list of lengths", sound + "Content-Length: 2, 2\r\n\r\nhi", 502, ""},
		{"signed length", sound + "Content-Length: +2\r\n\r\nhi", 502, ""},
		{"negative length", sound + "Content-Length: -2\r\n\r\nhi", 502, ""},
		{"more than its length", sound + "Content-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, "hi"},
		{"less than its length", sound + "Content-Length: 3\r\n\r\nhi", 200, "..."},
		{"another coding", sound + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 502, ""},
		{"chunked in two fields", sound + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 502, ""},
		{"chunks in HTTP/1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 200, "2\r\nhi\r\n0\r\n\r\n"},
		{"bad chunk", sound + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\nxyz\r\n", 200, "..."},
		{"chunk longer than its size", sound + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi!\r\n0\r\n\r\n", 200, "..."},
		{"chunk of bare LF", sound + "Transfer-Encoding: chunked\r\n\r\n2\nhi\n0\n\n", 200, "..."},
		{"chunk that overflows", sound + "Transfer-Encoding: chunked\r\n\r\n10000000000000002\r\nhi\r\n0\r\n\r\n", 200, "..."},
		{"no last chunk", sound + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n", 200, "..."},
		{"folded line", sound + "X: a\r\n b\r\nContent-Length: 2\r\n\r\nhi", 200, "hi"},
		{"bare LF", "HTTP/1.1 200 OK\nConnection: close\nContent-Length: 2\n\nhi", 200, "hi"},
		{"bare CR in a value", sound + "X: a\rContent-Length: 9\r\nContent-Length: 2\r\n\r\nhi", 502, ""},
		{"NUL in a value", sound + "X: \x00\r\nContent-Length: 2\r\n\r\nhi", 502, ""},
		{"space before the colon", sound + "Content-Length : 2\r\n\r\nhi", 200, "hi"},
		{"no colon", sound + "nonsense\r\n\r\nhi", 502, ""},
		{"no status", "HTTP/1.1 OK\r\n\r\nhi", 502, ""},
		{"a status of four digits", "HTTP/1.1 2000 OK\r\n\r\nhi", 502, ""},
		{"a status below 100", "HTTP/1.1 099 Odd\r\nContent-Length: 2\r\n\r\nhi", 502, ""},
		{"no HTTP", "220 mail.example ESMTP\r\n", 502, ""},
		{"HTTP/0.9", "<html>hi</html>\r\n", 502, ""},
		{"nothing", "", 502, ""},
		{"half a head", sound + "X: y\r\n", 502, ""},
		{"an endless head", sound + strings.Repeat("X: y\r\n", 1<<18), 502, ""},
		{"an endless field", sound + "X: " + strings.Repeat("y", 1<<20), 502, ""},
		{"hints without end", strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 1000) + sound + "\r\n", 502, ""},
		{"trailers that name framing", sound + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nContent-Length: 5\r\nTransfer-Encoding: x\r\nChecksum: 1\r\n\r\n", 200, "hi"},
		{"204 with a body", "HTTP/1.1 204 No Content\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi", 204, ""},
		{"304 with a body", "HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi", 304, ""},
	} {
		for _, inTunnel := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/tunnel %t", row.name, inTunnel), func(t *testing.T) {
				r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
				authority := r.rawOrigin(func(conn net.Conn) { io.WriteString(conn, row.octets) })
				conn, target := r.raw(""), "http://"+authority
				if inTunnel {
					conn, target = r.tunnelTo(authority), ""
				}
				fmt.Fprintf(conn, "GET %s/x HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", target, authority)
				octets, _ := io.ReadAll(conn) // it is reset where the body breaks off
				status, body := readStrictly(t, octets)
				if status != row.status || status != 502 && body != row.body {
					t.Errorf("answer %d %q, want %d %q", status, body, row.status, row.body)
				}
				if rec := r.last(1); rec.Status != row.status || (rec.Error != "") != (row.status == 502 || row.body == "...") {
					t.Errorf("record: %d %q", rec.Status, rec.Error)
				}
			})
		}
	}
}

// readStrictly reads the only final response in octets as the strictest client would. The body is "..." where it is not
// complete.
func readStrictly(t *testing.T, octets []byte) (status int, body string) {
	t.Helper()
	for {
		end := bytes.Index(octets, []byte("\r\n\r\n"))
		if end < 0 {
			t.Fatalf("no head in %.300q", octets)
		}
		head := string(octets[:end+2])
		octets = octets[end+4:]
		if strings.Count(head, "\n") != strings.Count(head, "\r\n") || strings.ContainsAny(head, "\x00") || strings.Contains(head, "\n ") {
			t.Errorf("head %q", head)
		}
		fmt.Sscanf(head, "HTTP/1.1 %d", &status)
		if status >= 200 {
			return status, readBody(t, status, head, octets)
		}
	}
}

func readBody(t *testing.T, status int, head string, octets []byte) string {
	t.Helper()
	lengths, codings := strings.Count(head, "\r\nContent-Length:"), strings.Count(head, "\r\nTransfer-Encoding:")
	if lengths+codings > 1 {
		t.Errorf("head %q", head)
	}
	resp, err := http.ReadResponse(bufio.NewReader(io.MultiReader(strings.NewReader(head+"\r\n"), bytes.NewReader(octets))), nil)
	if err != nil {
		t.Fatalf("%q: %v", head, err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "..."
	}
	if lower := strings.ToLower(string(octets)); codings > 0 && strings.Contains(lower, "\r\ncontent-length") {
		t.Errorf("framing fields among the trailers: %q", octets)
	}
	if codings+lengths == 0 && status != 204 && status != 304 {
		t.Errorf("no framing in %q", head)
	}
	return string(body)
}

// A flood of hints ends with a 502 soon, not when the origin tires; some are passed on.
func TestHintsAreBounded(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
	authority := r.rawOrigin(func(conn net.Conn) {
		for {
			if _, err := io.WriteString(conn, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"); err != nil {
				return
			}
		}
	})
	conn := r.raw("GET http://" + authority + "/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	octets, err := io.ReadAll(conn)
	if n := bytes.Count(octets, []byte("HTTP/1.1 103")); err != nil || n != maxInterim {
		t.Errorf("%d hints came, want %d; %v", n, maxInterim, err)
	}
	if rec := r.last(1); rec.Status != 502 || rec.Reason != policy.ReasonUpstream || rec.Error == "" {
		t.Errorf("record: %+v", rec)
	}
}

// An origin that goes away in each place ends the request at once, and never as a whole answer.
func TestOriginGoesAway(t *testing.T) {
	for name, row := range map[string]struct {
		octets string
		status int
	}{
		"before its head": {"", 502}, "in its head": {"HTTP/1.1 200 OK\r\nX: ", 502}, "in its body": {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhi", 200},
		"in a chunk": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhi", 200}, "in its trailers": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX: y\r\n", 200},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
			authority := r.rawOrigin(func(conn net.Conn) {
				io.WriteString(conn, row.octets)
				time.Sleep(20 * time.Millisecond) // so that what was written arrives before the reset
				conn.(*net.TCPConn).SetLinger(0)
			})
			octets, _ := io.ReadAll(r.raw("GET http://" + authority + "/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"))
			if status, body := readStrictly(t, octets); status != row.status || status == 200 && body != "..." {
				t.Errorf("answer %d %q", status, body)
			}
			if rec := r.last(1); rec.Error == "" {
				t.Errorf("record: %+v", rec)
			}
		})
	}
}

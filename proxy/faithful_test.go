package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// exactly reads octets from a connection and fails unless they are as wanted.
func exactly(t *testing.T, in io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(in, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v; want %q", got[:n], err, want)
	}
}

// What the client wrote is what the origin reads, octet by octet, but for the fields that are its connection's own.
func TestRequestOnTheWire(t *testing.T) {
	for _, row := range []struct{ name, sent, received string }{
		{
			"no User-Agent stays none, fields of one name keep their order, hop-by-hop ones stay here",
			"GET TARGET/a%2fb?c=%zz&d HTTP/1.1\r\nHost: AUTHORITY\r\nX-Twice: 1\r\nAccept-Encoding: br;q=1.0, gzip\r\nX-Twice: 2\r\nConnection: close, X-Mine\r\nX-Mine: 1\r\nKeep-Alive: 5\r\nProxy-Connection: keep-alive\r\nTE: trailers\r\n\r\n",
			"GET /a%2fb?c=%zz&d HTTP/1.1\r\nHost: AUTHORITY\r\nAccept-Encoding: br;q=1.0, gzip\r\nTe: trailers\r\nVia: 1.1 US\r\nX-Twice: 1\r\nX-Twice: 2\r\n\r\n",
		},
		{
			"of a path, only what no path may contain is encoded",
			"GET TARGET/<(a)'!*%28>?q=<(b)> HTTP/1.1\r\nHost: AUTHORITY\r\nUser-Agent: A\r\nConnection: close\r\n\r\n",
			"GET /%3C(a)'!*%28%3E?q=<(b)> HTTP/1.1\r\nHost: AUTHORITY\r\nUser-Agent: A\r\nVia: 1.1 US\r\n\r\n",
		},
		{
			"an empty User-Agent is none, and ours are cut off",
			"HEAD TARGET/ HTTP/1.1\r\nHost: AUTHORITY\r\nUser-Agent:\r\nRobotsproxy-Tag: x\r\nProxy-Authorization: Basic eDp5\r\nAuthorization: Basic eDp5\r\nConnection: close\r\n\r\n",
			"HEAD / HTTP/1.1\r\nHost: AUTHORITY\r\nAuthorization: Basic eDp5\r\nVia: 1.1 US\r\n\r\n",
		},
		{
			"Content-Length",
			"POST TARGET/ HTTP/1.1\r\nHost: AUTHORITY\r\nUser-Agent: A\r\nContent-Length: 5\r\nConnection: close\r\n\r\n\x00\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: AUTHORITY\r\nUser-Agent: A\r\nContent-Length: 5\r\nVia: 1.1 US\r\n\r\n\x00\r\n\r\n",
		},
		{
			"chunks and trailers",
			"PUT TARGET/ HTTP/1.1\r\nHost: AUTHORITY\r\nUser-Agent: A\r\nTransfer-Encoding: chunked\r\nTrailer: Sum\r\nConnection: close\r\n\r\n5;x=y\r\nhello\r\n0\r\nSum: 1\r\n\r\n",
			"PUT / HTTP/1.1\r\nHost: AUTHORITY\r\nUser-Agent: A\r\nTransfer-Encoding: chunked\r\nTrailer: Sum\r\nVia: 1.1 US\r\n\r\n5\r\nhello\r\n0\r\nSum: 1\r\n\r\n",
		},
		{
			"trailers that belong in a header, are the connection's own, or ours are cut off, announced or not",
			"PUT TARGET/ HTTP/1.1\r\nHost: AUTHORITY\r\nUser-Agent: A\r\nTransfer-Encoding: chunked\r\nTrailer: Sum, Proxy-Authorization, Robotsproxy-Tag\r\nConnection: close\r\n\r\n" +
				"5\r\nhello\r\n0\r\nSum: 1\r\nProxy-Authorization: Basic eDp5\r\nRobotsproxy-Tag: x\r\nAuthorization: Basic eDp5\r\nConnection: close\r\n\r\n",
			"PUT / HTTP/1.1\r\nHost: AUTHORITY\r\nUser-Agent: A\r\nTransfer-Encoding: chunked\r\nTrailer: Sum\r\nVia: 1.1 US\r\n\r\n5\r\nhello\r\n0\r\nSum: 1\r\n\r\n",
		},
		{
			"HTTP/1.0 becomes ours",
			"GET TARGET/ HTTP/1.0\r\nHost: AUTHORITY\r\nUser-Agent: A\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: AUTHORITY\r\nUser-Agent: A\r\nVia: 1.1 US\r\n\r\n",
		},
	} {
		for _, inTunnel := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/tunnel %t", row.name, inTunnel), func(t *testing.T) {
				r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
				arrived := make(chan net.Conn, 1)
				authority := r.wire(arrived)
				conn, target := r.raw(""), "http://"+authority
				if inTunnel {
					conn, target = r.tunnelTo(authority), ""
				}
				names := strings.NewReplacer("TARGET", target, "AUTHORITY", authority, "US", r.server.settings.Load().Pseudonym)
				io.WriteString(conn, names.Replace(row.sent))
				origin := <-arrived
				defer origin.Close()
				exactly(t, origin, names.Replace(row.received))
				io.WriteString(origin, sound+"Content-Length: 0\r\n\r\n")
				if all, err := answers(conn); err != nil || len(all) != 1 || all[0].StatusCode != 200 {
					t.Errorf("answers: %v, %v", all, err)
				}
				if rest, err := io.ReadAll(origin); len(rest) > 0 {
					t.Errorf("behind the request came %q, %v", rest, err)
				}
			})
		}
	}
}

// wire is an origin whose connections the test answers itself.
func (r *rig) wire(arrived chan<- net.Conn) (authority string) {
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
			conn.SetDeadline(time.Now().Add(20 * time.Second))
			arrived <- conn
		}
	}()
	return fmt.Sprintf("a.example:%d", l.Addr().(*net.TCPAddr).Port)
}

// Each piece of a stream is there before the next is sent, whatever it says it is, and so are hints and the head.
func TestStreamsOnTheWire(t *testing.T) {
	for _, contentType := range []string{"text/event-stream", "application/x-ndjson", "text/plain"} {
		t.Run(contentType, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
			arrived := make(chan net.Conn, 1)
			authority := r.wire(arrived)
			conn := r.raw("GET http://" + authority + "/ HTTP/1.1\r\nHost: a\r\n\r\n")
			origin := <-arrived
			defer origin.Close()
			if _, err := http.ReadRequest(bufio.NewReader(origin)); err != nil { // an answer that comes first is unasked
				t.Fatal(err)
			}
			in := bufio.NewReader(conn)
			io.WriteString(origin, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\nLink: </y>\r\n\r\n")
			exactly(t, in, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\nLink: </y>\r\n\r\n")
			io.WriteString(origin, "HTTP/1.1 200 OK\r\nContent-Type: "+contentType+"\r\nSet-Cookie: b=2\r\nSet-Cookie: a=1\r\nTransfer-Encoding: chunked\r\n\r\n")
			resp, err := http.ReadResponse(in, nil)
			if err != nil || resp.ContentLength != -1 || fmt.Sprint(resp.Header["Set-Cookie"]) != "[b=2 a=1]" {
				t.Fatalf("head: %+v, %v", resp, err)
			}
			for _, piece := range []string{"first\n", "second\n", "third"} {
				fmt.Fprintf(origin, "%x\r\n%s\r\n", len(piece), piece)
				exactly(t, resp.Body, piece)
			}
			io.WriteString(origin, "0\r\nLate: 1\r\n\r\n")
			if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 || resp.Trailer.Get("Late") != "1" {
				t.Errorf("the end: %q, %v, trailer %v", rest, err, resp.Trailer)
			}
		})
	}
}

// What the origin's answer lacks the client's lacks too, and the answer's own fields are kept. Nothing that has come is
// held back for the rest of a body whose length is known.
func TestAnswerOnTheWire(t *testing.T) {
	for _, inTunnel := range []bool{false, true} {
		t.Run(fmt.Sprintf("tunnel %t", inTunnel), func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
			arrived := make(chan net.Conn, 1)
			authority := r.wire(arrived)
			conn, target := r.raw(""), "http://"+authority
			if inTunnel {
				conn, target = r.tunnelTo(authority), ""
			}
			fmt.Fprintf(conn, "GET %s/ HTTP/1.1\r\nHost: %s\r\n\r\n", target, authority)
			origin := <-arrived
			defer origin.Close()
			if _, err := http.ReadRequest(bufio.NewReader(origin)); err != nil {
				t.Fatal(err)
			}
			io.WriteString(origin, "HTTP/1.1 200 OK\r\nDate: Sat, 01 Jan 2000 00:00:00 GMT\r\nConnection: keep-alive, X-Mine\r\nX-Mine: 1\r\nKeep-Alive: timeout=5\r\nTE: trailers\r\nX-Twice: 1\r\nContent-Length: 17\r\nX-Twice: 2\r\n\r\n<p>is")
			exactly(t, conn, "HTTP/1.1 200 OK\r\nContent-Length: 17\r\nDate: Sat, 01 Jan 2000 00:00:00 GMT\r\nVia: 1.1 "+r.server.settings.Load().Pseudonym+"\r\nX-Twice: 1\r\nX-Twice: 2\r\n\r\n<p>is")
			io.WriteString(origin, " it ")
			exactly(t, conn, " it ")
			io.WriteString(origin, "HTML?</p")
			exactly(t, conn, "HTML?</p")
		})
	}
}

// A client that waits for 100 gets it when the origin's turn has come, and a refusal in place of it where there is one.
func TestContinueOnTheWire(t *testing.T) {
	for _, way := range connections {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots = fixed(disallow) })
			conn, target, host := way.open(r)
			const request = "POST %s%s HTTP/1.1\r\nHost: %s\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
			fmt.Fprintf(conn, request, target, "/echo", host)
			exactly(t, conn, "HTTP/1.1 100 Continue\r\n\r\n")
			io.WriteString(conn, "hello")
			in := bufio.NewReader(conn)
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 || !strings.Contains(string(body), `"body_length": 5`) {
				t.Errorf("%s %s", resp.Status, body)
			}
			fmt.Fprintf(conn, request, target, "/private/up", host)
			if resp, err = http.ReadResponse(in, nil); err != nil || resp.StatusCode != 403 || !resp.Close {
				t.Errorf("a refused upload: %v, %v", resp, err) // closed: whether the body comes is not known
			}
		})
	}
}

// HEAD has GET's header.
func TestHEADOnTheWire(t *testing.T) {
	for _, way := range connections {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
			heads := make(map[string]http.Header)
			for _, method := range []string{"GET", "HEAD"} {
				conn, target, host := way.open(r)
				fmt.Fprintf(conn, "%s %s/bytes/4321 HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", method, target, host)
				in := bufio.NewReader(conn)
				resp, err := http.ReadResponse(in, &http.Request{Method: method})
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(resp.Body)
				if rest, _ := io.ReadAll(in); method == "HEAD" && len(body)+len(rest) > 0 {
					t.Errorf("HEAD has a body: %q", rest)
				}
				resp.Header.Del("Date")
				heads[method] = resp.Header
			}
			if got, want := fmt.Sprint(heads["HEAD"]), fmt.Sprint(heads["GET"]); got != want || heads["HEAD"].Get("Content-Length") != "4321" {
				t.Errorf("HEAD: %s\nGET:  %s", got, want)
			}
		})
	}
}

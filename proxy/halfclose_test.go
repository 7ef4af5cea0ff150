package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// A client that ends its own side behind its request gets the whole answer, however long it waits for it.
func TestHalfClosedClientIsAnswered(t *testing.T) {
	for _, way := range connections {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots = fixed("User-agent: *\nCrawl-delay: 0.2\n") })
			r.site.SetPage("a.example", "/up", func(w http.ResponseWriter, req *http.Request) {
				body, _ := io.ReadAll(req.Body)
				fmt.Fprintf(w, "%d octets", len(body))
			})
			for _, row := range []struct{ request, body string }{
				{"GET %s/delay/300ms HTTP/1.1\r\nHost: %s\r\n\r\n", "after 300ms\n"},
				{"GET %s/bytes/3000000 HTTP/1.1\r\nHost: %s\r\n\r\n", string(robotstest.Bytes(3000000))},
				{"GET %s/sse?n=3&every=100ms HTTP/1.1\r\nHost: %s\r\n\r\n", "data: 1\n\ndata: 2\n\ndata: 3\n\n"},
				{"POST %s/up HTTP/1.1\r\nHost: %s\r\nContent-Length: 5\r\n\r\nhello", "5 octets"},
				{"POST %s/up HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "3 octets"},
				{"GET %[1]s/page/1 HTTP/1.1\r\nHost: %[2]s\r\n\r\nGET %[1]s/delay/100ms HTTP/1.1\r\nHost: %[2]s\r\n\r\n", "after 100ms\n"},
			} {
				conn, target, host := way.open(r)
				fmt.Fprintf(conn, row.request, target, host)
				endSending(t, conn)
				all, err := answers(conn)
				if err != nil || len(all) == 0 {
					t.Fatalf("%q: %v, %v", row.request, all, err)
				}
				last := all[len(all)-1]
				if body, _ := io.ReadAll(last.Body); last.StatusCode != 200 || string(body) != row.body {
					t.Errorf("%q: %s, %d octets: %.50q", row.request, last.Status, len(body), body)
				}
				conn.Close()
			}
			r.eventually("the end of all", func() bool { return r.server.Active() == 0 })
			for _, rec := range r.records.all() {
				if rec.Error != "" {
					t.Errorf("record of %s: %s", rec.Path, rec.Error)
				}
			}
		})
	}
}

// endSending ends the client's side only, that of TCP too.
func endSending(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := closeWrite(conn); err != nil {
		t.Fatal(err)
	}
	if secure, ok := conn.(*tls.Conn); ok {
		if err := closeWrite(secure.NetConn()); err != nil {
			t.Fatal(err)
		}
	}
}

// TLS has an end of its own, without TCP's.
func TestCloseNotifyIsHalfAClose(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
	conn, _, host := connections[2].open(r)
	fmt.Fprintf(conn, "GET /delay/200ms HTTP/1.1\r\nHost: %s\r\n\r\n", host)
	if err := conn.(*tls.Conn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	octets, err := io.ReadAll(conn)
	if err != nil || !bytes.Contains(octets, []byte("after 200ms\n")) {
		t.Errorf("answer %q, %v", octets, err)
	}
}

// Who ends both sides has left, in HTTP/1.0 also who ends one: nothing more is done for it.
func TestWhoLeavesIsNotTakenForHalfClosed(t *testing.T) {
	for _, way := range connections {
		for version, leave := range map[string]func(net.Conn) error{"1.1": net.Conn.Close, "1.0": closeWrite} {
			t.Run(way.name+" HTTP/"+version, func(t *testing.T) {
				r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
				arrived, ended := make(chan struct{}), make(chan struct{})
				r.site.SetPage("a.example", "/wait", func(_ http.ResponseWriter, req *http.Request) {
					close(arrived)
					<-req.Context().Done()
					close(ended)
				})
				conn, target, host := way.open(r)
				fmt.Fprintf(conn, "GET %s/wait HTTP/%s\r\nHost: %s\r\n\r\n", target, version, host)
				<-arrived
				if err := leave(conn); err != nil {
					t.Fatal(err)
				}
				select {
				case <-ended:
				case <-time.After(10 * time.Second):
					t.Error("the origin went on working for nobody")
				}
				r.eventually("the end", func() bool { return r.server.Active() == 0 })
			})
		}
	}
}

// HTTP/1.0 knows no 100, whoever answers: the pages of the proxy itself too.
func TestNoProbeForHTTP10(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Onboarding = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			select {
			case <-req.Context().Done():
			case <-time.After(time.Second): // taken for half closed: a 100 was sent by now
			}
			io.WriteString(w, "a page")
		})
	})
	conn := r.raw("GET / HTTP/1.0\r\n\r\n")
	endSending(t, conn)
	if octets, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(octets), "HTTP/1.0 200 OK\r\n") {
		t.Errorf("answer %q, %v", octets, err)
	}
}

// An interim answer is no beginning of the final one, for which there is no patience when it does not go on.
func TestPatience(t *testing.T) {
	for name, row := range map[string]struct {
		answer string
		want   error
	}{
		"a hint":             {"HTTP/1.1 103 Early Hints\r\n\r\n", os.ErrDeadlineExceeded},
		"an answer":          {"HTTP/1.1 200 OK\r\n", io.EOF},
		"another protocol's": {"HTTP/1.1 101 Switching Protocols\r\n", io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, clients := net.Pipe()
				defer ours.Close()
				go io.Copy(io.Discard, clients)
				g := &gate{Conn: ours}
				g.heard.Store(true)
				ended := make(chan error, 1)
				go func() { ended <- g.halfClosed() }()
				io.WriteString(g, row.answer)
				time.Sleep(2 * patience)
				g.SetReadDeadline(time.Now().Add(-time.Second)) // as net/http does when the answer is complete
				if err := <-ended; err != row.want {
					t.Errorf("halfClosed() = %v, want %v", err, row.want)
				}
			})
		})
	}
}

// The 100 of a probe stands before the answer, never in it, and the origin's half close is no end before its time.
func TestProbesStandBeforeTheAnswer(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
	probed := make(chan struct{})
	authority := r.rawOrigin(func(conn net.Conn) {
		<-probed
		io.WriteString(conn, sound+"\r\nfirst ")
		time.Sleep(150 * time.Millisecond)
		io.WriteString(conn, "second")
	})
	conn := r.raw("GET http://" + authority + "/x HTTP/1.1\r\nHost: a\r\n\r\n")
	endSending(t, conn)
	exactly(t, conn, interim)
	close(probed)
	octets, err := io.ReadAll(conn)
	before, after, found := strings.Cut(string(octets), "HTTP/1.1 200 OK\r\n")
	if err != nil || !found || strings.ReplaceAll(before, interim, "") != "" || strings.Contains(after, "100 Continue") {
		t.Fatalf("answer %q, %v", octets, err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader("HTTP/1.1 200 OK\r\n"+after)), nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "first second" {
		t.Errorf("body %q, %v", body, err)
	}
}

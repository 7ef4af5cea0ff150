package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// Deadlines of reading hold although the connection hears of them late: the last before a read, and one that has passed
// during it.
func TestGateKeepsDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, clients := net.Pipe()
		defer ours.Close()
		defer clients.Close()
		g := &gate{Conn: ours}
		read := func(from io.Reader, want error, after time.Duration) {
			t.Helper()
			begun := time.Now()
			_, err := from.Read(make([]byte, 1))
			if took := time.Since(begun); !errors.Is(err, want) || took != after {
				t.Errorf("Read() = %v after %v, want %v after %v", err, took, want, after)
			}
		}
		send := func(after time.Duration) {
			time.AfterFunc(after, func() { io.WriteString(clients, "G") })
		}

		g.SetReadDeadline(time.Now().Add(time.Hour))
		g.SetReadDeadline(time.Now().Add(time.Second))
		read(g, os.ErrDeadlineExceeded, time.Second)
		read(g, os.ErrDeadlineExceeded, 0)

		g.SetReadDeadline(time.Time{})
		send(time.Minute)
		read(g, nil, time.Minute)

		time.AfterFunc(time.Second, func() { g.SetReadDeadline(time.Unix(1, 0)) })
		read(g, os.ErrDeadlineExceeded, time.Second)

		g.SetReadDeadline(time.Now().Add(time.Second))
		read(g, os.ErrDeadlineExceeded, time.Second)
		g.SetReadDeadline(time.Now().Add(time.Second))
		g.SetDeadline(time.Time{})
		send(time.Minute)
		read(g.Conn, nil, time.Minute) // as who takes the connection over reads it
		send(time.Minute)
		read(g, nil, time.Minute)
	})
}

// BenchmarkKeepAlive is one client's requests on one connection, with the gate in front of net/http and without it.
func BenchmarkKeepAlive(b *testing.B) {
	r := newRig(b, func(o *Options) { o.Snapshots = fixed(disallow) })
	r.site.SetPage("a.example", "/small", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "small") })
	bare, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go r.server.front.Serve(bare)
	request := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: a.example\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101\r\n"+
		"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br\r\n\r\n", r.url("http", "/small"))
	for _, row := range []struct{ name, addr string }{{"gate", r.addr}, {"bare", bare.Addr().String()}} {
		b.Run(row.name, func(b *testing.B) {
			conn, err := net.Dial("tcp", row.addr)
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			in := bufio.NewReader(conn)
			b.ReportAllocs()
			for b.Loop() {
				io.WriteString(conn, request)
				resp, err := http.ReadResponse(in, nil)
				if err != nil || resp.StatusCode != 200 {
					b.Fatal(resp, err)
				}
				io.Copy(io.Discard, resp.Body)
			}
		})
	}
}

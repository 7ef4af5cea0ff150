package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
)

// BenchmarkKeepAlive is one client's requests on one connection, with the checks of package http1 and without them.
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
	for _, row := range []struct{ name, addr string }{{"http1", r.addr}, {"bare", bare.Addr().String()}} {
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

//go:build !race

package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"

	"github.com/robotsproxy/robotsproxy/policy"
)

// What an idle tunnel keeps, of heap and stacks, is small. The clients' side is no more than a socket.
func TestIdleTunnelIsSmall(t *testing.T) {
	const tunnels, most = 500, 32 << 10
	for name, open := range map[string]func(*rig, net.Conn){
		"HTTP/1.1": (*rig).idleHTTP1, "HTTP/2": (*rig).idleHTTP2, "unread": func(*rig, net.Conn) {},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			port := r.site.TLSPort()
			if name == "unread" {
				r.change(func(o *Options) {
					o.Policy = r.newPolicy(policy.Options{Mode: policy.Off, Interception: policy.Tunnel})
				})
				port = silent(t)
			}
			hold := func() {
				_, conn, _ := r.connect(port, "", "")
				open(r, conn)
			}
			hold() // what is made once
			before := held()
			for range tunnels {
				hold()
			}
			each := (held() - before) / tunnels
			t.Logf("%d octets each", each)
			if each > most {
				t.Errorf("an idle tunnel keeps %d octets, want no more than %d", each, most)
			}
		})
	}
}

// held returns what is in use once the garbage is gone.
func held() int {
	runtime.GC()
	runtime.GC() // what a sync.Pool kept over the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

// idleHTTP1 has one request answered.
func (r *rig) idleHTTP1(conn net.Conn) {
	c := r.secured(conn, "http/1.1")
	fmt.Fprintf(c, "GET /page/1 HTTP/1.1\r\nHost: a.example:%d\r\n\r\n", r.site.TLSPort())
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != 200 {
		r.t.Fatalf("%v, %v", resp, err)
	}
	io.Copy(io.Discard, resp.Body)
}

// idleHTTP2 has the settings exchanged (RFC 9113 section 3.4).
func (r *rig) idleHTTP2(conn net.Conn) {
	c := r.secured(conn, "h2")
	io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	if _, err := io.ReadFull(c, make([]byte, 9)); err != nil {
		r.t.Fatal(err)
	}
}

// silent starts a server that keeps connections and says nothing.
func silent(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

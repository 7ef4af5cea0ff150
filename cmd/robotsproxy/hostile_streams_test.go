//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// tunnel sends requests over HTTP/2 through a CONNECT, and does not read the responses. It respects only the window of
// the connection: it opens more streams than the proxy allows.
type tunnel struct {
	authority string
	framer    *http2.Framer
	out       *bufio.Writer // to be flushed
	header    bytes.Buffer
	encoder   *hpack.Encoder
	stream    uint32

	mu     sync.Mutex // guards the fields below
	cond   *sync.Cond
	window int
	err    error // of the connection
}

// openTunnel opens a tunnel to host as a client.
func (s *scene) openTunnel(client, host string) (*tunnel, error) {
	conn, err := s.dial(client)
	if err != nil {
		return nil, err
	}
	s.held(func() { conn.Close() })
	t := &tunnel{authority: fmt.Sprintf("%s:%d", host, s.site.TLSPort()), stream: 1, window: 65535}
	t.cond, t.encoder = sync.NewCond(&t.mu), hpack.NewEncoder(&t.header)
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", t.authority, t.authority)
	const established = "HTTP/1.1 200 Connection established\r\n\r\n"
	answer := make([]byte, len(established))
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != established {
		return nil, fmt.Errorf("CONNECT: %q, %w", answer, err)
	}
	secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err := secure.Handshake(); err != nil {
		return nil, err
	}
	t.out = bufio.NewWriter(secure)
	t.framer = http2.NewFramer(t.out, secure)
	t.out.WriteString(http2.ClientPreface)
	if err := errors.Join(t.framer.WriteSettings(), t.out.Flush()); err != nil {
		return nil, err
	}
	go t.read()
	return t, nil
}

// read updates the window until the connection ends.
func (t *tunnel) read() {
	for {
		frame, err := t.framer.ReadFrame()
		t.mu.Lock()
		if w, ok := frame.(*http2.WindowUpdateFrame); ok && w.StreamID == 0 {
			t.window += int(w.Increment)
		}
		t.err = err
		t.cond.Broadcast()
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// await takes n bytes from the window of the connection once it has them.
func (t *tunnel) await(n int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.window < n && t.err == nil {
		t.cond.Wait()
	}
	t.window -= n
	return t.err
}

// post sends a request with a body of size bytes.
func (t *tunnel) post(path string, size int) error {
	t.header.Reset()
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "https"}, {":authority", t.authority}, {":path", path}, {"content-length", fmt.Sprint(size)},
	} {
		t.encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	err := t.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: t.stream, BlockFragment: t.header.Bytes(), EndHeaders: true, EndStream: size == 0,
	})
	for size > 0 && err == nil {
		n := min(size, 16<<10)
		size -= n
		if err = errors.Join(t.out.Flush(), t.await(n)); err == nil {
			err = t.framer.WriteData(t.stream, size == 0, make([]byte, n))
		}
	}
	t.stream += 2
	return errors.Join(err, t.out.Flush())
}

// A client with tunnels in which hundreds of requests wait is bounded in requests and memory, with or without bodies,
// and another client is not slowed.
func TestHostileStreams(t *testing.T) {
	const streams, mostRequests, mostMemory = 250, 5000, 200 << 20
	for _, row := range []struct{ tunnels, body int }{{60, 0}, {30, 60_000}} {
		t.Run(fmt.Sprintf("%d tunnels with bodies of %d", row.tunnels, row.body), func(t *testing.T) {
			site := robotstest.New(t)
			var hosts []string
			for i := range row.tunnels {
				hosts = append(hosts, fmt.Sprintf("h%d.example", i))
				site.SetRobots(hosts[i], robotstest.Robots{Body: "User-agent: *\nCrawl-delay: 0.5\n"})
			}
			s := newScene(t, site, "", hosts...)
			memory := s.memory()
			ask := s.get("other", fmt.Sprintf("https://a.example:%d/page/1", site.TLSPort()))
			s.unharmed(30, ask, func(context.Context) {
				err := parallel(row.tunnels, func(i int) error {
					tunnel, err := s.openTunnel("one", hosts[i])
					for n := 0; n < streams && err == nil; n++ {
						err = tunnel.post("/page/1", row.body)
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			})
			waiting, used := s.metric("robotsproxy_waiting_requests"), s.memory()-memory
			t.Logf("%d requests wait, %d are under way; %d MiB more than at the start", waiting, s.metric("robotsproxy_active_requests"), used>>20)
			if waiting < 100 || waiting > mostRequests {
				t.Errorf("%d requests wait, want 100 to %d", waiting, mostRequests)
			}
			if used > mostMemory && !raceEnabled {
				t.Errorf("they hold %d MiB, want %d at most", used>>20, mostMemory>>20)
			}
			s.closeAll()
			s.eventually(func() error {
				if n := s.metric("robotsproxy_active_requests"); n > 0 {
					return fmt.Errorf("%d requests are left", n)
				}
				return nil
			})
			if err := s.get("one", fmt.Sprintf("https://a.example:%d/page/1", site.TLSPort()))(0); err != nil {
				t.Errorf("the hostile client, after it has left its requests: %v", err)
			}
		})
	}
}

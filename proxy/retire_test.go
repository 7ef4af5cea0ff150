package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/policy"
)

// While a Server retires, a connection that was idle serves one more request, in every way, and then ends.
func TestRetireServesIdleConnections(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, nil)
			c := r.client(way.http1)
			c.Transport.(*http.Transport).MaxConnsPerHost = 1
			r.get(c, r.url(way.scheme, "/page/1"))
			retired := make(chan error, 1)
			go func() { retired <- r.server.Retire(context.Background(), time.Minute) }()
			r.eventually("the retirement", r.server.retiring.Load)
			time.Sleep(50 * time.Millisecond)                                  // an idle connection would be closed by now
			resp, err := c.Post(r.url(way.scheme, "/echo"), "text/plain", nil) // the client does not repeat it
			if err != nil || resp.StatusCode != 200 {
				t.Fatalf("the request on an idle connection: %v, %v", resp, err)
			}
			resp.Body.Close()
			if resp.ProtoMajor == 1 && !resp.Close {
				t.Error("the answer does not close the connection")
			}
			select {
			case err := <-retired:
				if err != nil {
					t.Errorf("Retire: %v", err)
				}
			case <-time.After(10 * time.Second):
				t.Errorf("Retire waits for %d connections", r.server.Connections())
			}
		})
	}
}

// After the grace, tunnels and WebSockets end, and requests that wait do not.
func TestRetireWaitsForRequests(t *testing.T) {
	r := pinned(t, policy.Options{Mode: policy.Off}, nil)
	release := r.heldPage()
	held := make(chan error, 1)
	go func() {
		resp, err := r.client(true).Get(r.url("http", "/held"))
		if err == nil && resp.StatusCode != 200 {
			err = fmt.Errorf("%s", resp.Status)
		}
		held <- err
	}()
	_, conn, in := r.connect(echo(t), "", "")
	if _, err := io.ReadFull(in, make([]byte, len("hello "))); err != nil {
		t.Fatalf("the tunnel: %v", err)
	}
	r.eventually("the request", func() bool { return r.server.Active() == 1 })
	retired := make(chan error, 1)
	go func() { retired <- r.server.Retire(context.Background(), 200*time.Millisecond) }()
	conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("the tunnel after the grace: %v, want its end", err)
	}
	select {
	case err := <-held:
		t.Errorf("the request ended with the grace: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	release()
	if err := <-held; err != nil {
		t.Errorf("the request: %v", err)
	}
	if err := <-retired; err != nil {
		t.Errorf("Retire: %v", err)
	}
}

// A WebSocket ends after the grace too.
func TestRetireEndsWebSockets(t *testing.T) {
	r := newRig(t, nil)
	conn := r.raw(fmt.Sprintf("GET %s HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", r.url("http", "/ws")))
	in := bufio.NewReader(conn)
	if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("the handshake: %v, %v", resp, err)
	}
	began := time.Now()
	if err := r.server.Retire(context.Background(), 200*time.Millisecond); err != nil {
		t.Errorf("Retire: %v", err)
	}
	if took := time.Since(began); took < 200*time.Millisecond || took > 5*time.Second {
		t.Errorf("Retire took %v, want the grace", took)
	}
	if _, err := in.ReadByte(); err == nil {
		t.Error("the WebSocket is open after Retire")
	}
}

// Connections that stay idle end long before the grace.
func TestRetireEndsIdleConnections(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			r.get(r.client(way.http1), r.url(way.scheme, "/page/1"))
			began := time.Now()
			if err := r.server.Retire(context.Background(), time.Minute); err != nil {
				t.Errorf("Retire: %v", err)
			}
			if took := time.Since(began); took < idleLinger || took > idleLinger+10*time.Second {
				t.Errorf("Retire took %v, want about %v", took, idleLinger)
			}
		})
	}
}

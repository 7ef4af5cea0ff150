package proxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
)

// A WebSocket lasts as long as either side says something within the idle time.
func TestSilentWebSocket(t *testing.T) {
	for _, speaker := range []string{"client", "origin"} {
		t.Run(speaker, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, client := net.Pipe()
				defer client.Close()
				ex := &exchange{server: &Server{}}
				ex.ctx, ex.cancel = context.WithCancelCause(t.Context())
				began := time.Now()
				ws := newWebSocket(ours, io.NopCloser(nil), ex, time.Minute)
				go io.Copy(io.Discard, client)
				go func() {
					for range 8 { // longer than the time-out in all
						time.Sleep(59 * time.Second)
						if speaker == "client" {
							io.WriteString(client, ".")
						} else {
							io.WriteString(ws, ".")
						}
					}
				}()
				if _, err := io.Copy(io.Discard, ws); !errors.Is(err, io.ErrClosedPipe) {
					t.Errorf("it ended with %v", err)
				}
				ex.abort(errClientLeft) // as its handler does
				if took, want := time.Since(began), 8*59*time.Second+time.Minute; took != want || ex.rec.Error != errSilent.Error() {
					t.Errorf("it ended after %v with %q, want %v", took, ex.rec.Error, want)
				}
			})
		})
	}
}

// Its end frees the connections to both sides, and the record says why.
func TestSilentWebSocketIsClosed(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots, o.IdleTimeout = fixed(""), 200*time.Millisecond })
			left := make(chan struct{})
			r.site.SetPage("a.example", "/silent", func(w http.ResponseWriter, req *http.Request) {
				conn, err := websocket.Accept(w, req, nil)
				if err != nil {
					return
				}
				conn.Read(context.WithoutCancel(req.Context()))
				close(left)
			})
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			conn, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(r.url(scheme, "/silent"), "http"), &websocket.DialOptions{HTTPClient: r.client(true)})
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := conn.Read(ctx); err == nil || ctx.Err() != nil {
				t.Errorf("the client read %v", err)
			}
			<-left
			if rec := r.last(1); rec.Status != 101 || rec.Error != errSilent.Error() {
				t.Errorf("record: %+v", rec)
			}
			r.eventually("the end", func() bool { return r.server.Connections() == 0 && r.server.Tunnels() == 0 })
		})
	}
}

// A WebSocket whose origin does not listen, so that what the client says is stuck, ends as every other: when it is
// idle, when it takes too long, and when the proxy stops.
func TestDeafWebSocket(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*Options)
		stop   bool
		want   error
	}{
		"idle":               {func(o *Options) { o.IdleTimeout = 300 * time.Millisecond }, false, errSilent},
		"too long":           {func(o *Options) { o.Limits.RequestTimeout = 1500 * time.Millisecond }, false, errTooLong},
		"the end of a grace": {nil, true, errStopping},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *Options) {
				o.Snapshots = fixed("")
				if row.change != nil {
					row.change(o)
				}
			})
			arrived := make(chan net.Conn, 1)
			authority := r.wire(arrived)
			client := r.raw("GET http://" + authority + "/ws HTTP/1.1\r\nHost: " + authority + "\r\n" + asksWell + "\r\n")
			origin := <-arrived
			defer origin.Close()
			if _, err := http.ReadRequest(bufio.NewReader(origin)); err != nil {
				t.Fatal(err)
			}
			io.WriteString(origin, grantsWell+"\r\n")
			if resp, err := http.ReadResponse(bufio.NewReader(client), nil); err != nil || resp.StatusCode != 101 {
				t.Fatalf("answer %v, %v", resp, err)
			}
			said := make(chan error, 1)
			go func() {
				_, err := client.Write(make([]byte, 64<<20)) // more than lies in between
				said <- err
			}()
			if row.stop {
				r.server.Close()
			}
			if err := <-said; err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the client said it all, or was left alone: %v", err)
			}
			if rec := r.last(1); rec.Status != 101 || rec.Error != row.want.Error() {
				t.Errorf("record: %+v", rec)
			}
			r.eventually("the end", func() bool { return r.server.Active() == 0 && r.server.Connections() == 0 && r.server.Tunnels() == 0 })
		})
	}
}

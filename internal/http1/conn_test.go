package http1

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// Deadlines of reading hold although the connection hears of them late: the last before a read, and one that has passed
// during it.
func TestConnKeepsDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, clients := net.Pipe()
		defer ours.Close()
		defer clients.Close()
		g := &Conn{Conn: ours}
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

package proxy

import (
	"bytes"
	"io"
	"os"
	"time"
)

// A client may say that it will send no more, with a FIN or with TLS's close_notify, and wait for its answer all the same.
// net/http takes that for its leaving and ends the request. The FIN of one that has left looks no different, until
// something is sent to it: then its system answers with a reset. So it is sent what every HTTP/1.1 client passes over, a
// 100 (RFC 9110 section 15.2), until the answer begins, whose writing says as much.

const (
	interim      = "HTTP/1.1 100 Continue\r\n\r\n"
	firstProbe   = 5 * time.Millisecond // behind the one that is sent at once: a reset takes a round trip
	longestProbe = 10 * time.Second
	probeTick    = 50 * time.Millisecond // how soon it is seen that the answer is complete
	patience     = 30 * time.Second      // with an answer that has begun and does not go on
)

// halfClosed returns when the client turns out to have left, or when the answer is complete, for which net/http sets a
// deadline that has passed.
func (g *gate) halfClosed() error {
	var elapsed, quiet time.Duration
	next, writes := time.Duration(0), int64(0)
	for {
		if elapsed >= next {
			if !g.probe() {
				return io.EOF
			}
			next = min(2*next+firstProbe, elapsed+longestProbe)
		}
		step := min(next-elapsed, probeTick)
		time.Sleep(step)
		elapsed, quiet = elapsed+step, quiet+step
		if g.expired.Load() {
			return os.ErrDeadlineExceeded
		}
		if n := g.writes.Load(); n != writes {
			writes, quiet = n, 0
		} else if n > 0 && quiet > patience {
			return io.EOF
		}
	}
}

// probe sends an interim answer unless the final one has begun. It reports whether the client may still be there. HTTP/1.0
// knows no interim answer: such a client has left when it sends no more.
func (g *gate) probe() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.writes.Load() > 0 {
		return true
	}
	if g.framing.old {
		return false
	}
	_, err := io.WriteString(g.Conn, interim)
	return err == nil
}

// Write keeps an interim answer out of the final one. Those of net/http are no beginning of it: it writes each by itself.
func (g *gate) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.heard.Load() {
		g.unheard(p)
		return len(p), nil
	}
	if g.writes.Load() > 0 || !isInterim(p) {
		g.writes.Add(1)
	}
	return g.Conn.Write(p)
}

func isInterim(p []byte) bool {
	return bytes.HasPrefix(p, []byte("HTTP/1.1 1")) && !bytes.HasPrefix(p, []byte("HTTP/1.1 101"))
}

// SetReadDeadline has a deadline that has passed take effect at once: by it net/http ends a read. Any other is for the
// reads that begin behind it, and between two of them net/http moves it up to five times.
func (g *gate) SetReadDeadline(t time.Time) error {
	g.waits.Lock()
	defer g.waits.Unlock()
	past := !t.IsZero() && time.Until(t) <= 0
	g.expired.Store(past)
	g.deadline, g.moved = t, !past
	if past {
		return g.Conn.SetReadDeadline(t)
	}
	return nil
}

// SetDeadline is what net/http calls when it lets go of a connection, which may then be read past the gate.
func (g *gate) SetDeadline(t time.Time) error {
	g.waits.Lock()
	defer g.waits.Unlock()
	g.moved = false
	return g.Conn.SetDeadline(t)
}

// tellDeadline lets Conn know the last deadline.
func (g *gate) tellDeadline() error {
	g.waits.Lock()
	defer g.waits.Unlock()
	if !g.moved {
		return nil
	}
	g.moved = false
	return g.Conn.SetReadDeadline(g.deadline)
}

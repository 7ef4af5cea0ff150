package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/http1"
	"github.com/robotsproxy/robotsproxy/ratelimit"
)

// errIdle ends a rawTunnel in which nothing moves.
var errIdle = errors.New("the tunnel was idle for longer than limits.idle_timeout")

// rawTunnel copies the bytes of a tunnel unread in both directions, for hosts whose clients do not trust the proxy's
// CA. It was judged as a whole, since its paths cannot be seen. It ends when both sides have ended, when one side
// breaks off, when nothing has moved in either direction for the idle time, or when the grace of Shutdown or Retire is
// over.
type rawTunnel struct {
	ex             *exchange
	client, origin net.Conn
	idle           time.Duration
	began          time.Time
	moved          atomic.Int64 // when bytes last moved, in nanoseconds after began

	once  sync.Once
	cause error // of an early end; nil if both sides ended
}

// serveRawTunnel answers a CONNECT to a host whose tunnels the proxy does not decrypt.
func (s *Server) serveRawTunnel(w *hijackWriter, ex *exchange, r *http.Request) {
	s.handlers.begin()
	var t *rawTunnel
	defer func() {
		if t == nil {
			w.close()
			s.handlers.end()
		}
	}()
	if t = s.openRawTunnel(w, ex, r); t == nil {
		return
	}
	go func() { // apart from the handler, to free its buffers and its stack
		defer s.handlers.end()
		defer ex.recoverPanic(nothingRead)
		t.run(s.streams)
	}()
}

// openRawTunnel judges and paces the CONNECT, dials the origin, and answers 200. It returns nil if it gave another
// answer.
func (s *Server) openRawTunnel(w *hijackWriter, ex *exchange, r *http.Request) (t *rawTunnel) {
	defer ex.unreserve()
	defer ex.recoverPanic(r)
	ex.ctx, ex.cancel = context.WithCancelCause(r.Context()) // net/http cancels it after the request, if nothing has
	r = r.WithContext(ex.ctx)
	if ref := ex.admit(r); ref != nil {
		ex.answer(r, ref)
		return nil
	}
	origin, ref := s.dial(r, ex)
	if ref != nil {
		ex.answer(r, ref)
		return nil
	}
	client, _, err := w.Hijack()
	if err == nil {
		err = s.established(client)
	}
	if err != nil {
		origin.Close()
		ex.end(fmt.Errorf("answering the CONNECT: %w", err))
		return nil
	}
	ex.rec.Status = http.StatusOK
	ex.response.ResponseWriter = nil // to free its buffers
	// As after an upgrade: the tunnel may last for hours.
	ex.released = ex.grant.Release(ratelimit.Outcome{Status: http.StatusOK})
	ex.settings = ex.settings.withoutPolicy()
	t = &rawTunnel{ex: ex, client: client, origin: origin, idle: ex.settings.IdleTimeout, began: time.Now()}
	if err := ex.keepOpen(t.close); err != nil {
		t.close(err)
	}
	return t
}

// dial opens the connection to the origin. The guard checks its address.
func (s *Server) dial(r *http.Request, ex *exchange) (net.Conn, *refusal) {
	if ref := ex.lookAgain(); ref != nil {
		return nil, ref
	}
	ex.rec.SentAt = time.Now()
	ex.grant.Sent()
	c, err := ex.settings.Guard.DialContext(ex.pin(r).Context(), "tcp", ex.origin.HostPort())
	if err != nil {
		return nil, upstreamRefusal(ex, err)
	}
	ex.rec.UpstreamAddr = addrString(c.RemoteAddr())
	if err := ex.keepOpen(func(error) { c.Close() }); err != nil {
		c.Close()
		return nil, upstreamRefusal(ex, err)
	}
	return c, nil
}

// run copies until both directions have ended, and ends the record.
func (t *rawTunnel) run(life context.Context) {
	stop := context.AfterFunc(life, func() { t.close(errStopping) })
	defer stop()
	up := make(chan struct{})
	go func() {
		defer close(up)
		t.copy(t.origin, t.client, nil)
	}()
	t.copy(t.client, t.origin, &t.ex.rec.Bytes)
	<-up
	t.close(nil)
	t.ex.end(t.cause)
}

// rawBuffer is small, since an idle rawTunnel holds two: it costs one system call for each 8 KiB.
const rawBuffer = 8 << 10

// copy copies from src to dst and adds the number of bytes to count. It passes the end of src on to dst while the other
// direction continues. After an error it closes both sides.
func (t *rawTunnel) copy(dst, src net.Conn, count *int64) {
	buf := make([]byte, rawBuffer)
	for {
		n, err := t.read(src, buf)
		if n > 0 {
			if err := t.write(dst, buf[:n]); err != nil {
				t.close(t.cutCause(dst, err))
				return
			}
			if count != nil {
				*count += int64(n)
			}
		}
		if err == io.EOF {
			_ = http1.CloseWrite(dst) // if dst has ended, the other direction sees that
			return
		}
		if err != nil {
			t.close(t.cutCause(src, err))
			return
		}
	}
}

// cutCause returns err with the side that broke off, for the record.
func (t *rawTunnel) cutCause(side net.Conn, err error) error {
	switch {
	case err == errIdle:
		return err
	case side == t.client:
		return errClientLeft
	}
	return fmt.Errorf("the origin broke off: %w", err)
}

// read reads from src. It waits for as long as bytes move in either direction.
func (t *rawTunnel) read(src net.Conn, buf []byte) (int, error) {
	for {
		moved := time.Duration(t.moved.Load())
		if err := src.SetReadDeadline(t.began.Add(moved + t.idle)); err != nil {
			return 0, err
		}
		n, err := src.Read(buf)
		if n > 0 {
			t.moved.Store(int64(time.Since(t.began)))
			return n, err
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, err
		}
		if time.Duration(t.moved.Load()) == moved {
			return 0, errIdle
		}
	}
}

func (t *rawTunnel) write(dst net.Conn, data []byte) error {
	if err := dst.SetWriteDeadline(time.Now().Add(t.idle)); err != nil {
		return err
	}
	_, err := dst.Write(data)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errIdle
	}
	t.moved.Store(int64(time.Since(t.began)))
	return err
}

// close closes both sides, which ends their reads and writes. Only the first cause counts.
func (t *rawTunnel) close(cause error) {
	t.once.Do(func() {
		t.cause = cause
		t.client.Close()
		t.origin.Close()
	})
}

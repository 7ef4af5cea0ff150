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

	"github.com/robotsproxy/robotsproxy/ratelimit"

	"github.com/robotsproxy/robotsproxy/internal/http1"
)

// errIdle ends a passage in which nobody says anything any more.
var errIdle = errors.New("the tunnel was idle for longer than limits.idle_timeout")

// passage is a tunnel whose octets are passed on unread, for hosts whose clients trust no certificate of ours. It was
// judged as a whole, since no path can be seen. It lasts until both sides have ended, one of them breaks off, nothing
// has moved either way for the idle time, or the grace of Shutdown is over.
type passage struct {
	ex             *exchange
	client, origin net.Conn
	idle           time.Duration
	moved          atomic.Int64 // when octets last moved: nanoseconds after began
	began          time.Time

	once  sync.Once
	cause error // why it was cut off; nil: both sides ended it
}

// passOn answers a CONNECT to a host whose tunnels are not opened here.
func (s *Server) passOn(w *hijackWriter, r *http.Request) {
	if !s.handlers.begin() {
		panic(http.ErrAbortHandler)
	}
	p := s.openPassage(w, r)
	if p == nil {
		s.handlers.end()
		return
	}
	go func() { // apart from the handler, whose buffers and stack it does not need
		defer s.handlers.end()
		p.run(s.life)
	}()
}

// openPassage judges, waits for the host's turn, dials, and answers 200. It returns nil where another answer was due.
func (s *Server) openPassage(w *hijackWriter, r *http.Request) (p *passage) {
	ex := w.newExchange(r)
	ex.unread = true
	defer ex.unreserve()
	defer func() {
		if v := recover(); v != nil {
			w.refuse(r, ex.panicked(r, v))
			w.close()
		}
	}()
	if ref := (pipeline{s}).admit(r, ex); ref != nil {
		w.refuse(r, ex.refuse(r, ref))
		return nil
	}
	origin, ref := s.dial(r, ex)
	if ref != nil {
		w.refuse(r, ex.refuse(r, ref))
		return nil
	}
	client, _, err := w.Hijack()
	if err == nil {
		err = s.established(client)
	}
	if err != nil {
		origin.Close()
		w.close()
		ex.end(fmt.Errorf("answering the CONNECT: %w", err))
		return nil
	}
	ex.rec.Status = http.StatusOK
	ex.writer = nil                                            // its buffers are not needed any more
	ex.grant.Release(ratelimit.Outcome{Status: http.StatusOK}) // as an upgrade does: the tunnel may last for hours
	return &passage{ex: ex, client: client, origin: origin, idle: s.options.IdleTimeout, began: time.Now()}
}

// dial opens the connection to the origin. The guard sees its address.
func (s *Server) dial(r *http.Request, ex *exchange) (net.Conn, *Refusal) {
	if ref := (pipeline{s}).lookAgain(r, ex); ref != nil {
		return nil, ref
	}
	ex.rec.SentAt = time.Now()
	c, err := s.options.Guard.DialContext(r.Context(), "tcp", ex.origin.HostPort())
	if err != nil {
		return nil, upstreamRefusal(r, ex, err)
	}
	ex.rec.UpstreamAddr = addrString(c.RemoteAddr())
	return c, nil
}

// run passes octets on until the end, which it records.
func (p *passage) run(life context.Context) {
	stop := context.AfterFunc(life, func() { p.cut(errStopping) })
	defer stop()
	up := make(chan struct{})
	go func() {
		defer close(up)
		p.pass(p.origin, p.client, nil)
	}()
	p.pass(p.client, p.origin, &p.ex.rec.Bytes)
	<-up
	p.cut(nil)
	p.ex.end(p.cause)
}

// passBuffer is small, since an idle passage holds two: what it costs is system calls, one for each 8 KiB.
const passBuffer = 8 << 10

// pass copies from src to dst and counts what passed. The end of src is passed on as the end of what dst is sent, while
// the other direction goes on; every other end cuts both.
func (p *passage) pass(dst, src net.Conn, count *int64) {
	buf := make([]byte, passBuffer)
	for {
		n, err := p.read(src, buf)
		if n > 0 {
			if err := p.write(dst, buf[:n]); err != nil {
				p.cut(p.broke(dst, err))
				return
			}
			if count != nil {
				*count += int64(n)
			}
		}
		if err == io.EOF {
			_ = http1.CloseWrite(dst) // where dst is gone already, what is read from it says so
			return
		}
		if err != nil {
			p.cut(p.broke(src, err))
			return
		}
	}
}

// broke words err for the record: which side broke off, if one did.
func (p *passage) broke(side net.Conn, err error) error {
	switch {
	case err == errIdle:
		return err
	case side == p.client:
		return errClientLeft
	}
	return fmt.Errorf("the origin broke off: %w", err)
}

// read reads from src for as long as octets move in either direction.
func (p *passage) read(src net.Conn, buf []byte) (int, error) {
	for {
		moved := time.Duration(p.moved.Load())
		if err := src.SetReadDeadline(p.began.Add(moved + p.idle)); err != nil {
			return 0, err
		}
		n, err := src.Read(buf)
		if n > 0 {
			p.moved.Store(int64(time.Since(p.began)))
			return n, err
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, err
		}
		if time.Duration(p.moved.Load()) == moved {
			return 0, errIdle
		}
	}
}

func (p *passage) write(dst net.Conn, octets []byte) error {
	if err := dst.SetWriteDeadline(time.Now().Add(p.idle)); err != nil {
		return err
	}
	_, err := dst.Write(octets)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errIdle
	}
	p.moved.Store(int64(time.Since(p.began)))
	return err
}

// cut ends both sides, and what waits for them. Only the first cause counts.
func (p *passage) cut(cause error) {
	p.once.Do(func() {
		p.cause = cause
		p.client.Close()
		p.origin.Close()
	})
}

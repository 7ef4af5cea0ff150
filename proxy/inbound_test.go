package proxy

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// flakyListener returns an error before its first connection, as when descriptors run out.
type flakyListener struct {
	net.Listener
	failed bool
}

var errFlaky = errors.New("too many open files")

func (l *flakyListener) Accept() (net.Conn, error) {
	if !l.failed {
		l.failed = true
		return nil, errFlaky
	}
	return l.Listener.Accept()
}

// TestPreparing has connections that are prepared at once, slowly, and never, and closes the listener.
func TestPreparing(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := newPreparing(&flakyListener{Listener: l}, 3, func(c net.Conn) (net.Conn, bool) {
		var word [4]byte
		if _, err := io.ReadFull(c, word[:]); err != nil {
			c.Close()
			return nil, false
		}
		return c, true
	})
	dial := func(word string) net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_, _ = io.WriteString(c, word)
		return c
	}
	if _, err := p.Accept(); err != errFlaky {
		t.Errorf("the first Accept = %v, want the error of the listener", err)
	}
	silent, half := dial(""), dial("ha")
	dial("good")
	c, err := p.Accept()
	if err != nil {
		t.Fatalf("beside silent connections: %v", err)
	}
	c.Close()
	for deadline := time.Now().Add(10 * time.Second); p.add(nil); time.Sleep(time.Millisecond) {
		p.remove(nil) // until silent and half are in preparation, and another
		dial("")
		if time.Now().After(deadline) {
			t.Fatal("the connections in preparation are not bounded")
		}
	}
	if _, err := io.ReadAll(dial("")); err != nil {
		t.Errorf("one connection too many: %v, want its end", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	for _, c := range []net.Conn{silent, half} {
		c.SetDeadline(time.Now().Add(10 * time.Second))
		var timeout net.Error
		if _, err := io.ReadAll(c); errors.As(err, &timeout) && timeout.Timeout() {
			t.Error("a connection in preparation outlives the listener")
		}
	}
	if _, err := p.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close = %v", err)
	}
}

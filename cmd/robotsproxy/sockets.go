package main

import (
	"fmt"
	"net"
	"sync"

	"github.com/robotsproxy/robotsproxy/internal/systemd"
)

// sockets opens the listeners of the configuration, and passes them on to the next process.
type sockets struct {
	prior     *predecessor            // may be nil
	activated map[string]net.Listener // those of the service manager that listen has not returned, by key
	managed   map[string]string       // addresses of the service manager's sockets, by key
	open      []socket
}

// openSockets returns the sockets that this process has inherited from prior, or, if it is nil, from the service
// manager. The addresses of the latter replace those of source.
func openSockets(source *configSource, prior *predecessor) (*sockets, error) {
	s := &sockets{prior: prior, activated: make(map[string]net.Listener), managed: make(map[string]string)}
	if prior != nil {
		s.managed = prior.Managed
		source.sockets = s.managed
		return s, nil
	}
	keys := map[string]string{"proxy": "listen", "admin": "admin.listen"}
	listeners, err := systemd.Sockets("proxy", "admin")
	if err != nil {
		return nil, usage(err)
	}
	for name, l := range listeners {
		s.activated[keys[name]] = l
		s.managed[keys[name]] = l.Addr().String()
	}
	source.sockets = s.managed
	return s, nil
}

type socket struct {
	name     socketName
	listener *net.TCPListener
}

// listen returns the listener for the address of a key: that of the service manager, or that of the old process if it
// has the same address.
func (s *sockets) listen(key, address string) (net.Listener, error) {
	name := socketName{key, address}
	l := s.activated[key]
	delete(s.activated, key)
	if s.prior != nil {
		l = s.prior.sockets[name]
		delete(s.prior.sockets, name)
	}
	if l == nil {
		var err error
		if l, err = net.Listen("tcp", address); err != nil {
			return nil, usage(fmt.Errorf("%s: %w; choose another address with --%s", key, plainError(err), flagName(key)))
		}
	}
	if tcp, ok := l.(*net.TCPListener); ok {
		s.open = append(s.open, socket{name, tcp})
	}
	return l, nil
}

// heldListener can stop accepting without an error, which would end its server.
type heldListener struct {
	net.Listener
	closing sync.Once
	held    chan struct{} // closed by hold
	closed  chan struct{} // closed by Close
}

func newHeldListener(l net.Listener) *heldListener {
	return &heldListener{Listener: l, held: make(chan struct{}), closed: make(chan struct{})}
}

// hold closes the listener of this process. Accept then waits for Close.
func (l *heldListener) hold() {
	close(l.held)
	_ = l.Listener.Close()
}

func (l *heldListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		return c, nil
	}
	select {
	case <-l.held:
		<-l.closed
	default:
	}
	return nil, err
}

func (l *heldListener) Close() error {
	l.closing.Do(func() { close(l.closed) })
	select {
	case <-l.held:
		return nil
	default:
		return l.Listener.Close()
	}
}

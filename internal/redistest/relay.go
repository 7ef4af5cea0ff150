package redistest

import (
	"bytes"
	"net"
	"sync"
	"testing"
	"time"
)

// Relay forwards connections to a server.
type Relay struct {
	tb       testing.TB
	listener net.Listener
	to       string
	running  sync.WaitGroup

	// mu guards the fields below.
	mu     sync.Mutex
	delay  time.Duration
	cut    []byte
	conns  map[net.Conn]bool
	parted bool
	closed bool
}

// NewRelay returns a Relay to the server at addr. It is closed when the test ends.
func NewRelay(tb testing.TB, addr string) *Relay {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	r := &Relay{tb: tb, listener: l, to: addr, conns: make(map[net.Conn]bool)}
	r.running.Go(r.accept)
	tb.Cleanup(r.close)
	return r
}

// Addr returns the host and port.
func (r *Relay) Addr() string { return r.listener.Addr().String() }

// Port returns the port.
func (r *Relay) Port() string {
	_, port, _ := net.SplitHostPort(r.Addr())
	return port
}

// URL returns the address in the form of go-redis.
func (r *Relay) URL() string { return "redis://" + r.Addr() }

// Delay makes each piece of a reply arrive later by d, without delaying those after it further.
func (r *Relay) Delay(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = d
}

// Cut drops the reply to the next request that contains word, and closes the connection: the server has run the
// request, but the client cannot know. An empty word disables Cut.
func (r *Relay) Cut(word string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = []byte(word)
}

// Part closes all connections, and each new one at once, until Join.
func (r *Relay) Part() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parted = true
	for conn := range r.conns {
		conn.Close()
	}
	clear(r.conns)
}

// Join ends a Part.
func (r *Relay) Join() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parted = false
}

// takesCut reports whether to drop the reply to a request. It reports true once per Cut.
func (r *Relay) takesCut(request []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.cut) == 0 || !bytes.Contains(request, r.cut) {
		return false
	}
	r.cut = nil
	return true
}

func (r *Relay) latency() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.delay
}

func (r *Relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", r.to)
		if err != nil || !r.keep(client, server) {
			client.Close()
			continue
		}
		lost := make(chan struct{})
		r.running.Go(func() { r.forward(client, server, lost) })
		r.running.Go(func() { r.back(server, client, lost) })
	}
}

// keep registers a pair of connections. It reports false if the Relay forwards nothing.
func (r *Relay) keep(client, server net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.parted {
		server.Close()
		return false
	}
	r.conns[client], r.conns[server] = true, true
	return true
}

// forward copies requests to the server. It closes lost before it sends the request with the reply to drop.
func (r *Relay) forward(client, server net.Conn, lost chan<- struct{}) {
	defer server.Close()
	buf := make([]byte, 1<<16)
	for once := true; ; {
		n, err := client.Read(buf)
		if once && r.takesCut(buf[:n]) {
			once = false
			close(lost)
		}
		if _, werr := server.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// back copies replies to the client, each piece after the delay.
func (r *Relay) back(server, client net.Conn, lost <-chan struct{}) {
	defer client.Close()
	type piece struct {
		due  time.Time
		data []byte
	}
	pieces := make(chan piece, 1<<12)
	r.running.Go(func() {
		defer client.Close()
		for p := range pieces {
			time.Sleep(time.Until(p.due))
			if _, err := client.Write(p.data); err != nil {
				server.Close()
			}
		}
	})
	defer close(pieces)
	buf := make([]byte, 1<<16)
	for {
		n, err := server.Read(buf)
		select {
		case <-lost:
			return
		default:
		}
		if n > 0 {
			pieces <- piece{time.Now().Add(r.latency()), bytes.Clone(buf[:n])}
		}
		if err != nil {
			return
		}
	}
}

func (r *Relay) close() {
	r.listener.Close()
	r.mu.Lock()
	r.closed = true
	for conn := range r.conns {
		conn.Close()
	}
	r.mu.Unlock()
	r.running.Wait()
}

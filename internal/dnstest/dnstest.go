// Package dnstest runs a DNS server for tests.
package dnstest

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// Server is a DNS server on loopback whose answers for a name change from one question to the next.
type Server struct {
	conn net.PacketConn

	mu      sync.Mutex
	answers map[string][][]string // by name; the addresses of one answer after the other; the last repeats
	asked   map[string]int        // questions for IPv4 addresses, by name
}

// New starts a Server and stops it when the test ends.
func New(t *testing.T) *Server {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &Server{conn: conn, answers: make(map[string][][]string), asked: make(map[string]int)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.serve()
	}()
	t.Cleanup(func() {
		conn.Close()
		<-ended
	})
	return n
}

// Set makes the addresses of name those of each of answers once, and those of the last from then on.
func (n *Server) Set(name string, answers ...[]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answers[name+"."] = answers
}

// Questions returns the number of questions for the IPv4 addresses of name.
func (n *Server) Questions(name string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked[name+"."]
}

// Resolver returns a Resolver that asks n only.
func (n *Server) Resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", n.conn.LocalAddr().String())
	}}
}

func (n *Server) serve() {
	buf := make([]byte, 512)
	for {
		size, from, err := n.conn.ReadFrom(buf)
		if err != nil {
			return // closed
		}
		if answer, err := n.answer(buf[:size]); err == nil {
			_, _ = n.conn.WriteTo(answer, from)
		}
	}
}

func (n *Server) answer(question []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil {
		return nil, err
	}
	q := m.Questions[0]
	m.Header = dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true}
	m.Additionals = nil
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.asked[q.Name.String()]
	if q.Type == dnsmessage.TypeA {
		n.asked[q.Name.String()]++
	}
	all, known := n.answers[q.Name.String()]
	if !known {
		m.RCode = dnsmessage.RCodeNameError
		return m.Pack()
	}
	for _, text := range all[min(before, len(all)-1)] {
		if r := resource(q, netip.MustParseAddr(text)); r != nil {
			m.Answers = append(m.Answers, *r)
		}
	}
	return m.Pack()
}

// resource returns addr as an answer to q, or nil if q asks for the other family.
func resource(q dnsmessage.Question, addr netip.Addr) *dnsmessage.Resource {
	r := &dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}}
	switch {
	case q.Type == dnsmessage.TypeA && addr.Is4():
		r.Body = &dnsmessage.AResource{A: addr.As4()}
	case q.Type == dnsmessage.TypeAAAA && addr.Is6():
		r.Body = &dnsmessage.AAAAResource{AAAA: addr.As16()}
	default:
		return nil
	}
	return r
}

package proxy

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// nameserver is a DNS server that answers the same question otherwise each time.
type nameserver struct {
	conn net.PacketConn

	mu      sync.Mutex
	answers map[string][][]string // name to the addresses of one answer after the other; the last stays
	asked   map[string]int        // how often for IPv4 addresses
}

func newNameserver(t *testing.T) *nameserver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &nameserver{conn: conn, answers: make(map[string][][]string), asked: make(map[string]int)}
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

// set makes each of answers the addresses of name once, and the last for ever.
func (n *nameserver) set(name string, answers ...[]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answers[name+"."] = answers
}

// questions returns how often name was asked for.
func (n *nameserver) questions(name string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked[name+"."]
}

// resolver asks n and nobody else.
func (n *nameserver) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", n.conn.LocalAddr().String())
	}}
}

func (n *nameserver) serve() {
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

func (n *nameserver) answer(question []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil {
		return nil, err
	}
	q := m.Questions[0]
	m.Header = dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true}
	m.Additionals = nil
	n.mu.Lock()
	defer n.mu.Unlock()
	all, known := n.answers[q.Name.String()]
	if !known {
		m.RCode = dnsmessage.RCodeNameError
		return m.Pack()
	}
	turn := min(n.asked[q.Name.String()], len(all)-1)
	if q.Type == dnsmessage.TypeA {
		n.asked[q.Name.String()]++
	}
	for _, text := range all[turn] {
		if r := resource(q, netip.MustParseAddr(text)); r != nil {
			m.Answers = append(m.Answers, *r)
		}
	}
	return m.Pack()
}

// resource is addr as an answer to q, or nil if it is of the other family.
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

//go:build linux

package main

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"golang.org/x/net/dns/dnsmessage"
)

// dnsServer is the DNS server of a web. Its hosts have IPv4 addresses only.
type dnsServer struct {
	conn      net.PacketConn
	lookUp    func(name string) (addr string, ok bool)
	questions atomic.Int64
	running   sync.WaitGroup
}

func newDNS(lookUp func(name string) (addr string, ok bool)) (*dnsServer, error) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	_ = conn.(*net.UDPConn).SetReadBuffer(4 << 20) // bursts; the system may grant less
	s := &dnsServer{conn: conn, lookUp: lookUp}
	s.running.Go(s.serve)
	return s, nil
}

// newResolver returns a resolver that asks the server at addr alone.
func newResolver(addr string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", addr)
	}}
}

func (s *dnsServer) addr() string { return s.conn.LocalAddr().String() }

func (s *dnsServer) close() {
	s.conn.Close()
	s.running.Wait()
}

func (s *dnsServer) serve() {
	question := make([]byte, 512)
	for {
		n, from, err := s.conn.ReadFrom(question)
		if err != nil {
			return // closed
		}
		s.questions.Add(1)
		if answer, err := s.answer(question[:n]); err == nil {
			_, _ = s.conn.WriteTo(answer, from)
		}
	}
}

func (s *dnsServer) answer(question []byte) ([]byte, error) {
	var p dnsmessage.Parser
	header, err := p.Start(question)
	if err != nil {
		return nil, err
	}
	q, err := p.Question()
	if err != nil {
		return nil, err
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: header.ID, Response: true, RecursionAvailable: true},
		Questions: []dnsmessage.Question{q},
	}
	addr, ok := s.lookUp(q.Name.String())
	switch {
	case !ok:
		m.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 60},
			Body:   &dnsmessage.AResource{A: netip.MustParseAddr(addr).As4()},
		}}
	}
	return m.Pack()
}

package certs

import (
	"container/list"
	"crypto/tls"
	"crypto/x509"
	"sync"
	"time"
)

// maxLeaves bounds memory: about 1 KiB each.
const maxLeaves = 10_000

// leaf is a certificate and the time during which it is used.
type leaf struct {
	host        string
	issuer      *x509.Certificate
	cert        *tls.Certificate
	from, renew time.Time
}

// leaves is an LRU cache of certificates.
type leaves struct {
	max int

	mu     sync.Mutex // guards the fields below
	byHost map[string]*list.Element
	order  *list.List // of *leaf, most recently used first
}

func newLeaves(max int) *leaves {
	return &leaves{max: max, byHost: make(map[string]*list.Element), order: list.New()}
}

// get returns host's certificate by issuer, or nil if there is no current one. A certificate from the future is not
// current: the clock was set back, and clients would refuse it.
func (l *leaves) get(host string, issuer *x509.Certificate, now time.Time) *tls.Certificate {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.byHost[host]
	if !ok {
		return nil
	}
	kept := e.Value.(*leaf)
	if !kept.issuer.Equal(issuer) || now.Before(kept.from) || !now.Before(kept.renew) {
		return nil
	}
	l.order.MoveToFront(e)
	return kept.cert
}

// add stores a certificate. It replaces the previous one of the host, or the least recently used one if the cache is
// full.
func (l *leaves) add(fresh *leaf) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.byHost[fresh.host]; ok {
		e.Value = fresh
		l.order.MoveToFront(e)
		return
	}
	l.byHost[fresh.host] = l.order.PushFront(fresh)
	if l.order.Len() > l.max {
		oldest := l.order.Remove(l.order.Back()).(*leaf)
		delete(l.byHost, oldest.host)
	}
}

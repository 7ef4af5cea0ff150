package certs

import (
	"container/list"
	"crypto/tls"
	"crypto/x509"
	"sync"
	"time"
)

// maxLeafBytes bounds the memory of the process for leaves. Half of it is for the garbage collector. It suffices for
// about 37,000 leaves.
const maxLeafBytes = 64 << 20

// leafOverhead is the memory for a leaf in the cache without its name and its DER, with the room that the allocator and
// the map leave.
const leafOverhead = 390

// leaf is a certificate and the time during which it is used.
type leaf struct {
	host        string
	issuer      *x509.Certificate
	cert        *tls.Certificate
	from, renew time.Time
}

// size returns the memory for l in the process, with the part for the garbage collector.
func (l *leaf) size() int {
	return 2 * (leafOverhead + len(l.host) + len(l.cert.Certificate[0]))
}

// leaves is an LRU cache of certificates.
type leaves struct {
	maxBytes int

	mu     sync.Mutex // guards the fields below
	bytes  int        // sum of the sizes
	byHost map[string]*list.Element
	order  *list.List // of *leaf, most recently used first
}

func newLeaves(maxBytes int) *leaves {
	return &leaves{maxBytes: maxBytes, byHost: make(map[string]*list.Element), order: list.New()}
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

// add stores a certificate. It replaces the previous one of the host, and removes the least recently used ones if all
// together are too large.
func (l *leaves) add(fresh *leaf) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.byHost[fresh.host]; ok {
		l.remove(e)
	}
	l.byHost[fresh.host] = l.order.PushFront(fresh)
	l.bytes += fresh.size()
	for l.bytes > l.maxBytes {
		l.remove(l.order.Back())
	}
}

// remove removes the certificate at e. l.mu must be held.
func (l *leaves) remove(e *list.Element) {
	old := l.order.Remove(e).(*leaf)
	delete(l.byHost, old.host)
	l.bytes -= old.size()
}

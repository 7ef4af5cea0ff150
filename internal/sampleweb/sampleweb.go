// Package sampleweb is a small web of several sites on one loopback port, for demonstrations without the internet. Each
// site shows one thing that a polite crawler must heed: rules, a Crawl-delay, a bot wall, a 429 and others.
//
//	web, err := sampleweb.Start()
//	defer web.Close()
//	fmt.Println(web.URL()) // for egress.upstream_proxy: the web answers for every host
//
// The web is an HTTP proxy that asks no other server, so that the URLs of its sites have no port. It resolves no name.
// A host that is not part of it has a page that lists its sites. Crawler visits the sites.
package sampleweb

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

// Web is a running web. Its sites keep no state but the count of requests that a site with a limit has had.
type Web struct {
	server   *http.Server
	listener net.Listener
	ended    chan error
}

// Start starts a web on a free port of 127.0.0.1. The caller closes it.
func Start() (*Web, error) {
	certificate, err := newCertificate()
	if err != nil {
		return nil, fmt.Errorf("sampleweb: making a certificate: %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("sampleweb: listening on a free port: %w", err)
	}
	w := &Web{listener: l, ended: make(chan error, 2)}
	inside := &tunnels{conns: make(chan net.Conn), closed: make(chan struct{})}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	w.server = &http.Server{
		Handler: newHandler(inside), ReadHeaderTimeout: 10 * time.Second, Protocols: protocols,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
		ErrorLog:  log.New(io.Discard, "", 0), // clients that leave
	}
	go func() { w.ended <- w.server.Serve(l) }()
	go func() { w.ended <- w.server.ServeTLS(inside, "", "") }()
	return w, nil
}

// newHandler returns the handler of all sites, which passes the connections of tunnels to inside.
func newHandler(inside *tunnels) http.Handler {
	sites := newSites()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			inside.open(w)
			return
		}
		sites.ServeHTTP(w, r)
	})
}

// URL returns the URL of the web as a proxy.
func (w *Web) URL() string { return "http://" + w.listener.Addr().String() }

// Close ends the web and all its connections.
func (w *Web) Close() error {
	err := w.server.Close()
	for range cap(w.ended) {
		if ended := <-w.ended; !errors.Is(ended, http.ErrServerClosed) {
			err = errors.Join(err, ended)
		}
	}
	return err
}

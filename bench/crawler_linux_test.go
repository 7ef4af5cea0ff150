package bench

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/robotsproxy/robotsproxy/bench/internal/lab"
)

// A crawler sends one request after another through a proxy, and reads each answer whole. It is as light as can be, so
// that the proxy is what is measured: where HTTP/1.1 is spoken, octets made once are written and answers are parsed.
type crawler interface {
	get() (*answer, error) // the answer is good until the next get
	close()
}

type answer struct {
	status int
	body   []byte
}

// crawl makes a crawler that gets path of o through p.
type crawl func(o *origins, p *process, path string) (crawler, error)

// keepAlive sends all its requests over one connection.
type keepAlive struct {
	conn    net.Conn
	reader  *bufio.Reader
	request []byte
	body    bytes.Buffer
}

func newKeepAlive(conn net.Conn, target, authority string) *keepAlive {
	request := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: BenchBot/1.0 (+https://bench.example/bot)\r\n"+
		"Accept: text/html,*/*;q=0.8\r\nAccept-Language: en\r\nAccept-Encoding: identity\r\n\r\n", target, authority)
	return &keepAlive{conn: conn, reader: bufio.NewReader(conn), request: []byte(request)}
}

func (k *keepAlive) get() (*answer, error) {
	if _, err := k.conn.Write(k.request); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(k.reader, nil)
	if err != nil {
		return nil, err
	}
	return readAnswer(resp, &k.body)
}

func (k *keepAlive) close() { k.conn.Close() }

func readAnswer(resp *http.Response, into *bytes.Buffer) (*answer, error) {
	into.Reset()
	_, err := into.ReadFrom(resp.Body)
	return &answer{resp.StatusCode, into.Bytes()}, errors.Join(err, resp.Body.Close())
}

// plain speaks HTTP/1.1 in clear, in absolute-form, over one connection.
func (o *origins) plain(p *process, path string) (crawler, error) {
	conn, err := net.Dial("tcp", p.addr)
	if err != nil {
		return nil, err
	}
	return newKeepAlive(conn, "http://"+o.http+path, o.http), nil
}

// https1 speaks HTTP/1.1 inside one tunnel.
func (o *origins) https1(p *process, path string) (crawler, error) {
	conn, err := openTunnel(p, o.https)
	if err != nil {
		return nil, err
	}
	return newKeepAlive(conn, path, o.https), nil
}

// openTunnel shakes hands in full: without a session cache there is nothing to resume.
func openTunnel(p *process, authority string) (net.Conn, error) {
	return lab.OpenTunnel(p.addr, authority, &tls.Config{RootCAs: p.ca, ServerName: host})
}

// tunnels opens a tunnel for each request and closes it after the answer.
type tunnels struct {
	proxy           *process
	authority, path string
}

func (o *origins) tunnels(p *process, path string) (crawler, error) {
	return &tunnels{proxy: p, authority: o.https, path: path}, nil
}

func (t *tunnels) get() (*answer, error) {
	conn, err := openTunnel(t.proxy, t.authority)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return newKeepAlive(conn, t.path, t.authority).get()
}

func (t *tunnels) close() {}

// http2 speaks HTTP/2 inside one tunnel of its own.
type http2 struct {
	transport *http.Transport
	request   *http.Request
	body      bytes.Buffer
}

func (o *origins) http2(p *process, path string) (crawler, error) {
	request, err := http.NewRequest(http.MethodGet, "https://"+o.https+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", "BenchBot/1.0 (+https://bench.example/bot)")
	request.Header.Set("Accept", "text/html,*/*;q=0.8")
	request.Header.Set("Accept-Language", "en")
	request.Header.Set("Accept-Encoding", "identity")
	transport := &http.Transport{
		Proxy:             http.ProxyURL(&url.URL{Scheme: "http", Host: p.addr}),
		TLSClientConfig:   &tls.Config{RootCAs: p.ca},
		ForceAttemptHTTP2: true,
	}
	return &http2{transport: transport, request: request}, nil
}

func (h *http2) get() (*answer, error) {
	resp, err := h.transport.RoundTrip(h.request)
	if err != nil {
		return nil, err
	}
	if resp.ProtoMajor != 2 {
		_, err := io.Copy(io.Discard, resp.Body)
		return nil, errors.Join(fmt.Errorf("the proxy answered in %s", resp.Proto), err, resp.Body.Close())
	}
	return readAnswer(resp, &h.body)
}

func (h *http2) close() { h.transport.CloseIdleConnections() }

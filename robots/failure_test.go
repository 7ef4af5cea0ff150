package robots_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// TestFailures has an origin for every way to fail, and the errors that net/http makes of it: once met by a Fetcher
// (RFC 9309 section 2.3.1.4: all of them disallow), and once by a bare transport, as package proxy meets them.
func TestFailures(t *testing.T) {
	site := robotstest.New(t)
	secure := func(host string) string { return fmt.Sprintf("https://%s:%d", host, site.TLSPort()) }
	set := func(host string, h http.HandlerFunc) { site.SetRobots(host, robotstest.Robots{Handler: h}) }
	set("reset.example", robotstest.Reset)
	set("cut.example", robotstest.Truncate)
	set("large.example", func(w http.ResponseWriter, _ *http.Request) {
		for i := range 70 {
			w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 1000))
		}
	})
	set("long.example", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<20)) })
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	head := "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + file

	for _, row := range []struct{ name, from, want string }{
		{"9209 2.3/nobody listens", "http://" + robotstest.Refusing(t), "connection_refused"},
		{"9209 2.3/no such name", "http://no-such-name.example", "dns_error"},
		{"9209 2.3/closed before the head", raw(t, answer("")), "connection_terminated"},
		{"9209 2.3/closed in the head", raw(t, answer("HTTP/1.1 200 OK\r\nServer: x\r\n")), "http_response_incomplete"},
		{"9209 2.3/reset before the head", "http://reset.example:" + fmt.Sprint(site.Port()), "connection_terminated"},
		{"9209 2.3/reset before the head, later", raw(t, reset("")), "connection_terminated"},
		{"9209 2.3/reset in the body", raw(t, reset(head)), "connection_terminated"},
		{"9209 2.3/closed in the body", raw(t, answer(head)), "http_response_incomplete"},
		{"9209 2.3/closed between chunks", "http://cut.example:" + fmt.Sprint(site.Port()), "http_response_incomplete"},
		{"9209 2.3/head too large", "http://large.example:" + fmt.Sprint(site.Port()), "http_response_header_section_size"},
		{"9209 2.3/head too large for HTTP/2", secure("large.example"), "http_response_header_section_size"},
		{"9209 2.3/one field too large for HTTP/2", secure("long.example"), "http_protocol_error"},
		{"9209 2.3/another protocol", raw(t, answer("220 mail.example ESMTP ready\r\n")), "http_protocol_error"},
		{"9209 2.3/no status", raw(t, answer("HTTP/1.1 OK\r\n\r\n")), "http_protocol_error"},
		{"9209 2.3/a bad field", raw(t, answer("HTTP/1.1 200 OK\r\nno colon\r\n\r\n")), "http_protocol_error"},
		{"9209 2.3/HTTP/2 stream reset before the head", secure("reset.example"), "http_protocol_error"},
		{"9209 2.3/HTTP/2 stream reset in the body", secure("cut.example"), "http_protocol_error"},
		{"9209 2.3/certificate expired", secure("expired.example"), "tls_certificate_error"},
		{"9209 2.3/certificate of another host", secure("wrong-name.example"), "tls_certificate_error"},
		{"9209 2.3/certificate of an unknown root", secure("untrusted.example"), "tls_certificate_error"},
		{"9209 2.3/plain HTTP where TLS should be", strings.Replace(plain.URL, "http:", "https:", 1), "tls_protocol_error"},
		{"9209 2.3/another protocol where TLS should be", rawTLS(t, func(c *net.TCPConn) { io.WriteString(c, "220 mail.example\r\n") }), "tls_protocol_error"},
		{"9209 2.3/alert", alerting(t), "tls_alert_received"},
		{"9209 2.3/closed in the handshake", rawTLS(t, func(*net.TCPConn) {}), "connection_terminated"},
	} {
		t.Run(row.name, func(t *testing.T) {
			transport := failing(t, site)
			snap := fetched(t, newFetcherOver(t, transport, nil), row.from)
			if got, want := outline(snap), "unreachable 0 "+row.want; got != want {
				t.Errorf("Fetch(%s) = %s, want %s; the error: %v", row.from, got, want, snap.Err)
			}
			if err := exchange(transport, row.from); fetch.ErrorType(err) != row.want {
				t.Errorf("ErrorType(%v) = %s, want %s", err, fetch.ErrorType(err), row.want)
			}
		})
	}
}

// TestTimeouts has an origin that hangs at each step: there a Fetcher's own time ends, and a bare transport's.
func TestTimeouts(t *testing.T) {
	const soon = 600 * time.Millisecond // in which a busy machine does what stands before the step
	site := robotstest.New(t)
	silent := func(conn *net.TCPConn) { readHead(conn); hang(conn) }
	body := func(conn *net.TCPConn) {
		readHead(conn)
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
		hang(conn)
	}
	for _, row := range []struct{ name, from, want string }{
		{"9209 2.3/no answer of the name server", "http://slow-name.example", "dns_timeout"},
		{"9209 2.3/no answer to a SYN", "http://" + full(t), "connection_timeout"},
		{"9209 2.3/silent handshake", rawTLS(t, hang), "connection_timeout"},
		{"9209 2.3/no head", raw(t, silent), "http_response_timeout"},
		{"9209 2.3/no body", raw(t, body), "http_response_timeout"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			transport := failing(t, site)
			f := newFetcherOver(t, transport, func(o *fetch.Options) { o.Timeout = soon })
			snap := fetched(t, f, row.from)
			if got, want := outline(snap), "unreachable 0 "+row.want; got != want {
				t.Errorf("Fetch(%s) = %s, want %s; the error: %v", row.from, got, want, snap.Err)
			}
			if want := fmt.Sprintf("not had within %v: ", soon); !strings.HasPrefix(fmt.Sprint(snap.Err), want) {
				t.Errorf("Fetch(%s) says %v, want that it begins with %q", row.from, snap.Err, want)
			}
			if strings.HasSuffix(row.name, "/no body") {
				return // a bare transport has no time-out for that
			}
			transport = failing(t, site)
			transport.TLSHandshakeTimeout, transport.ResponseHeaderTimeout = soon, soon
			if err := exchange(transport, row.from); fetch.ErrorType(err) != row.want {
				t.Errorf("ErrorType(%v) = %s, want %s", err, fetch.ErrorType(err), row.want)
			}
		})
	}
}

func TestErrorTypeUnknown(t *testing.T) {
	if got, want := fetch.ErrorType(io.ErrNoProgress), "destination_unavailable"; got != want {
		t.Errorf("ErrorType(%v) = %s, want %s", io.ErrNoProgress, got, want)
	}
}

// exchange is the whole of a request, body included, without a Fetcher. It gives up on a dial after a while.
func exchange(transport http.RoundTripper, from string) error {
	req, err := http.NewRequest(http.MethodGet, from+"/robots.txt", nil)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// failing is a transport that really dials, and asks a name server that knows few names.
func failing(t *testing.T, site *robotstest.Site) *http.Transport {
	server := nameServer(t)
	dialer := net.Dialer{Timeout: time.Second, Resolver: &net.Resolver{
		PreferGo: true,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "udp", server)
		},
	}}
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: site.CAPool()}, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 64 << 10,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if host, port, _ := net.SplitHostPort(addr); strings.HasSuffix(host, ".example") && port != "80" {
				addr = "127.0.0.1:" + port
			}
			return dialer.DialContext(ctx, network, addr)
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// nameServer knows no name. To those that begin with "slow" it answers when the test ends, since a resolver that is
// still waiting then would be a leak.
func nameServer(t *testing.T) (addr string) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	type query struct {
		message []byte
		from    net.Addr
	}
	var withheld []query
	answer := func(q query) {
		q.message[2], q.message[3] = 0x81, 0x83 // a response: NXDOMAIN (RFC 1035 section 4.1.1)
		_, _ = conn.WriteTo(q.message, q.from)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			message := make([]byte, 1500)
			n, from, err := conn.ReadFrom(message)
			if err != nil {
				break
			}
			q := query{message[:n], from}
			if strings.Contains(string(q.message), "slow") {
				withheld = append(withheld, q)
				continue
			}
			answer(q)
		}
		for _, q := range withheld {
			answer(q)
		}
	})
	t.Cleanup(func() {
		_ = conn.SetReadDeadline(time.Now())
		running.Wait()
		conn.Close()
	})
	return conn.LocalAddr().String()
}

func raw(t *testing.T, serve func(*net.TCPConn)) string { return "http://" + serveRaw(t, serve) }

// rawTLS serves those who begin with a ClientHello, which is read.
func rawTLS(t *testing.T, serve func(*net.TCPConn)) string {
	return "https://" + serveRaw(t, func(conn *net.TCPConn) {
		_, _ = conn.Read(make([]byte, 16<<10))
		serve(conn)
	})
}

// reset answers with text, waits until the other side has it, and then resets the connection.
func reset(text string) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		readHead(conn)
		io.WriteString(conn, text)
		time.Sleep(20 * time.Millisecond) // a RST overtakes what has not been read
		_ = conn.SetLinger(0)
	}
}

// alerting speaks no version of TLS that others do.
func alerting(t *testing.T) string {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return nil, io.ErrNoProgress // the handshake ends with the alert internal_error
	}}
	server.Config.ErrorLog = quiet
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

// full is an address whose queue of connections is full, so that the kernel answers to none of the next.
func full(t *testing.T) string {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	for range 16 {
		conn, err := net.DialTimeout("tcp", addr, 500*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Skip("this kernel takes connections that nobody accepts")
	return ""
}

package proxy

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/http1"
	"github.com/robotsproxy/robotsproxy/internal/http1test"
	"github.com/robotsproxy/robotsproxy/policy"
)

// connections are the ways that octets can come by, HTTP/2 left out: its frames are not ours to read.
var connections = []struct {
	name string
	open func(*rig) (conn net.Conn, target, host string)
}{
	{"front", func(r *rig) (net.Conn, string, string) {
		authority := fmt.Sprintf("a.example:%d", r.site.Port())
		return r.raw(""), "http://" + authority, authority
	}},
	{"tunnel in clear", func(r *rig) (net.Conn, string, string) {
		authority := fmt.Sprintf("a.example:%d", r.site.Port())
		return r.tunnelTo(authority), "", authority
	}},
	{"tunnel with TLS", func(r *rig) (net.Conn, string, string) {
		authority := fmt.Sprintf("a.example:%d", r.site.TLSPort())
		return tls.Client(r.tunnelTo(authority), &tls.Config{ServerName: "a.example", RootCAs: r.ca}), "", authority
	}},
}

// tunnelTo opens a tunnel.
func (r *rig) tunnelTo(authority string) net.Conn {
	r.t.Helper()
	conn := r.raw("CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n\r\n")
	const want = "HTTP/1.1 200 Connection established\r\n\r\n"
	answer := make([]byte, len(want))
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != want {
		r.t.Fatalf("CONNECT %s: %q, %v", authority, answer, err)
	}
	return conn
}

// answers reads final responses until the connection ends, or until the first that cannot be read.
func answers(conn net.Conn) (all []*http.Response, err error) {
	in := bufio.NewReader(conn)
	for {
		resp, err := http.ReadResponse(in, nil)
		if errors.Is(err, io.ErrUnexpectedEOF) && len(all) > 0 {
			return all, nil // net/http's word for an end where a response could have begun
		}
		if err != nil {
			return all, err
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return all, err
		}
		resp.Body = io.NopCloser(strings.NewReader(string(body)))
		if resp.StatusCode >= 200 {
			all = append(all, resp)
		}
	}
}

func isRefused(resp *http.Response, status int) bool {
	return resp.StatusCode == status && resp.Close && resp.Header.Get("Robotsproxy-Reason") == string(policy.ReasonBadRequest) &&
		resp.Header.Get("Robotsproxy-Request-Id") != "" && resp.Header.Get("Cache-Control") == "no-store"
}

// What is ambiguous is refused in the contract of every refusal, recorded, and followed by the end of the connection.
// The origin sees no request complete that was in it.
func TestSmuggling(t *testing.T) {
	for _, way := range connections {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
			var complete atomic.Int64
			r.site.SetPage("a.example", "/up", func(_ http.ResponseWriter, req *http.Request) {
				if _, err := io.Copy(io.Discard, req.Body); err == nil {
					complete.Add(1)
				}
			})
			for name, row := range http1test.Malformed {
				if name == "TLS" && way.name == "tunnel in clear" {
					continue // it is welcome there
				}
				t.Run(name, func(t *testing.T) {
					r.site.Reset()
					conn, target, host := way.open(r)
					defer conn.Close()
					fit := strings.NewReplacer(" / ", " "+target+"/up ", "Host: a\r", "Host: "+host+"\r")
					smuggled := "GET " + target + "/smuggled HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
					go io.WriteString(conn, fit.Replace(row.Bytes)+smuggled) // the answer may come before all is written
					all, err := answers(conn)
					if len(all) != 1 || err != nil || !isRefused(all[0], statusOf(row.Bytes)) {
						t.Fatalf("%.200q: answers %v, %v", row.Bytes, all, err)
					}
					if slices.Contains(r.site.Paths("a.example"), "/smuggled") || complete.Load() > 0 {
						t.Errorf("%.200q: the origin saw %v, %d complete", row.Bytes, r.site.Requests(), complete.Load())
					}
					last := r.records.all()
					if rec := last[len(last)-1]; rec.Reason != policy.ReasonBadRequest || rec.Error == "" || rec.ID.String() != all[0].Header.Get("Robotsproxy-Request-Id") {
						t.Errorf("%.200q: record %s %q %q, want %s", row.Bytes, rec.ID, rec.Reason, rec.Error, all[0].Header.Get("Robotsproxy-Request-Id"))
					}
				})
			}
		})
	}
}

// Requests that net/http would answer before it calls a handler are refused and recorded as others are.
func TestRefusedBeforeNetHTTP(t *testing.T) {
	for _, way := range connections {
		for _, row := range []struct {
			name, target, fields string
			status               int
			why                  string
		}{
			{"target", "/100%-cotton HTTP/1.1", "", 400, "the target is not a URL"},
			{"Host", "/x HTTP/1.1", "Host: a b\r\n", 400, "Host is not a host"},
			{"Expect", "/x HTTP/1.1", "Expect: 200-ok\r\n", 417, "Expect is not 100-continue"},
			{"Expect of HTTP/1.0", "/x HTTP/1.0", "Expect: 200-ok\r\n", 417, "Expect is not 100-continue"},
			{"Trailer", "/x HTTP/1.1", "Transfer-Encoding: chunked\r\nTrailer: Content-Length\r\n", 400, "Trailer names a field"},
		} {
			t.Run(way.name+"/"+row.name, func(t *testing.T) {
				r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
				conn, target, host := way.open(r)
				if !strings.HasPrefix(row.fields, "Host") {
					row.fields += "Host: " + host + "\r\n"
				}
				fmt.Fprintf(conn, "GET %s/page/1 HTTP/1.1\r\nHost: %s\r\n\r\nPOST %s%s\r\n%s\r\nGET %s/page/2 HTTP/1.1\r\nHost: %s\r\n\r\n",
					target, host, target, row.target, row.fields, target, host)
				all, err := answers(conn)
				if err != nil || len(all) != 2 || all[0].StatusCode != 200 || !isRefused(all[1], row.status) {
					t.Fatalf("answers %v, %v", all, err)
				}
				rec := r.last(2)
				if !strings.Contains(rec.Error, row.why) || rec.Status != row.status || rec.ID.String() != all[1].Header.Get("Robotsproxy-Request-Id") {
					t.Errorf("record: %+v", rec)
				}
				if got := fmt.Sprint(r.site.Paths("a.example")); got != "[/page/1]" {
					t.Errorf("the origin saw %s", got)
				}
			})
		}
	}
}

// statusOf returns how a row of http1test.Malformed is answered.
func statusOf(octets string) int {
	switch line, _, _ := strings.Cut(octets, "\n"); {
	case strings.Contains(octets, "Expect: "):
		return http.StatusExpectationFailed
	case len(octets) > http1.MaxHeaderBytes:
		return http.StatusRequestHeaderFieldsTooLarge
	case strings.Contains(line, "HTTP/1.2"), strings.Contains(line, "HTTP/1.10"), strings.Contains(line, "HTTP/2"):
		return http.StatusHTTPVersionNotSupported
	}
	return http.StatusBadRequest
}

// Requests that come in one segment are answered in order up to the broken one, also where it comes while the first is
// served; and a client that leaves meanwhile is noticed still.
func TestPipelining(t *testing.T) {
	for _, way := range connections {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
			conn, target, host := way.open(r)
			request := func(path, rest string) string {
				return "GET " + target + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + rest + "\r\n"
			}
			io.WriteString(conn, request("/page/1", "")+request("/delay/100ms", "")+request("/page/2", "X : y\r\n")+request("/page/3", ""))
			all, err := answers(conn)
			if err != nil || len(all) != 3 || all[0].StatusCode != 200 || all[1].StatusCode != 200 || !isRefused(all[2], 400) {
				t.Fatalf("answers: %v, %v", all, err)
			}
			if got := fmt.Sprint(r.site.Paths("a.example")); got != "[/delay/100ms /page/1]" {
				t.Errorf("the origin was asked for %v", got)
			}

			conn, target, host = way.open(r)
			io.WriteString(conn, request("/delay/100ms", "")+"POST "+target+"/echo HTTP/1.1\r\nHost: "+host+"\r\nTransfer-Encoding: chunked\r\n\r\n+1\r\n")
			all, err = answers(conn)
			if err != nil || len(all) != 2 || all[0].StatusCode != 200 || !isRefused(all[1], 400) {
				t.Errorf("a request, and one whose body is broken: %v, %v", all, err)
			}

			r.site.SetPage("a.example", "/wait", func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() })
			conn, target, host = way.open(r)
			io.WriteString(conn, request("/wait", "")+request("/page/2", "X : y\r\n"))
			r.eventually("the request at the origin", func() bool { return slices.Contains(r.site.Paths("a.example"), "/wait") })
			conn.Close()
			r.eventually("its end", func() bool { return r.server.Active() == 0 })
		})
	}
}

// A body whose framing breaks is refused while its request is under way, and the origin sees it break off.
func TestBrokenBodyIsNeverComplete(t *testing.T) {
	for _, way := range connections {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
			began, ended := make(chan struct{}), make(chan error, 1)
			r.site.SetPage("a.example", "/up", func(_ http.ResponseWriter, req *http.Request) {
				io.ReadFull(req.Body, make([]byte, 5))
				close(began)
				_, err := io.Copy(io.Discard, req.Body)
				ended <- err
			})
			conn, target, host := way.open(r)
			io.WriteString(conn, "POST "+target+"/up HTTP/1.1\r\nHost: "+host+"\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
			<-began
			io.WriteString(conn, "3\r\nabcd\r\n0\r\n\r\nGET "+target+"/smuggled HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
			all, err := answers(conn)
			if err != nil || len(all) != 1 || !isRefused(all[0], 400) {
				t.Errorf("answers: %v, %v", all, err)
			}
			if err := <-ended; err == nil {
				t.Error("the origin saw a complete body")
			}
			if got := fmt.Sprint(r.site.Paths("a.example")); got != "[/up]" {
				t.Errorf("the origin was asked for %v", got)
			}
			if rec := r.last(1); rec.Reason != policy.ReasonBadRequest || rec.SentAt.IsZero() || rec.Method != "POST" || len(r.records.all()) != 1 {
				t.Errorf("records: %+v", r.records.all())
			}
		})
	}
}

// The client has its answer although much is unread behind the broken body: a reset would take it away.
func TestBrokenBodyIsAnsweredInGoodOrder(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
	rest := strings.Repeat("y", 200<<10)
	for range 20 {
		conn := r.raw("POST " + r.url("http", "/echo") + " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n" + rest)
		if all, err := answers(conn); err != nil || len(all) != 1 || !isRefused(all[0], 400) {
			t.Fatalf("answers: %v, %v", all, err)
		}
		conn.Close()
	}
}

// A body that breaks when its answer has begun breaks that off, and the record says whose fault it was.
func TestBrokenBodyBehindTheAnswer(t *testing.T) {
	for _, way := range connections {
		t.Run(way.name, func(t *testing.T) {
			begun := make(chan struct{})
			r := newRig(t, func(o *Options) {
				o.Snapshots = fixed("")
				transport := o.Transport
				o.Transport = roundTripper(func(req *http.Request) (*http.Response, error) {
					defer close(begun)
					return transport.RoundTrip(req)
				})
			})
			r.site.SetPage("a.example", "/up", func(w http.ResponseWriter, req *http.Request) {
				control := http.NewResponseController(w)
				control.EnableFullDuplex()
				io.WriteString(w, "begun")
				control.Flush()
				io.Copy(io.Discard, req.Body)
				<-req.Context().Done()
			})
			conn, target, host := way.open(r)
			io.WriteString(conn, "POST "+target+"/up HTTP/1.1\r\nHost: "+host+"\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
			<-begun
			io.WriteString(conn, "zz\r\n")
			if all, err := answers(conn); err == nil {
				t.Errorf("the answer looks whole: %v", all)
			}
			if rec := r.last(1); rec.Status != 200 || !strings.Contains(rec.Error, "a chunk's size") {
				t.Errorf("record: %+v", rec)
			}
		})
	}
}

// The body of a refused request never becomes the next request.
func TestRefusedBodyIsNoRequest(t *testing.T) {
	for _, way := range connections {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots = fixed(disallow) })
			conn, target, host := way.open(r)
			smuggled := "GET " + target + "/smuggled HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
			io.WriteString(conn, fmt.Sprintf("POST %s/private/x HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", target, host, len(smuggled), smuggled))
			io.WriteString(conn, fmt.Sprintf("POST %s/private/x HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", target, host, len(smuggled), smuggled))
			io.WriteString(conn, "HEAD "+target+"/private/x HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
			in := bufio.NewReader(conn)
			for _, method := range []string{"POST", "POST", "HEAD"} {
				resp, err := http.ReadResponse(in, &http.Request{Method: method})
				if err != nil || resp.StatusCode != 403 {
					t.Fatalf("%s: %v, %v", method, resp, err)
				}
				io.Copy(io.Discard, resp.Body)
			}
			if rest, _ := io.ReadAll(in); len(rest) > 0 || len(r.site.Requests()) > 0 {
				t.Errorf("behind the answers came %q, and the origin saw %v", rest, r.site.Requests())
			}
		})
	}
}

// A client that does not send the body of a refused request is answered all the same, and does not keep its connection.
func TestRefusedBodyIsNotWaitedFor(t *testing.T) {
	for _, way := range connections {
		for _, body := range []string{"Transfer-Encoding: chunked\r\n\r\n5\r\nhe", "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"} {
			t.Run(way.name+"/"+body, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, func(o *Options) { o.Snapshots = fixed(disallow) })
				conn, target, host := way.open(r)
				fmt.Fprintf(conn, "POST %s/private/x HTTP/1.1\r\nHost: %s\r\n%s", target, host, body)
				if all, err := answers(conn); err != nil || len(all) != 1 || all[0].StatusCode != 403 || !all[0].Close {
					t.Errorf("answers: %v, %v", all, err)
				}
				r.eventually("the end", func() bool { return r.server.Connections() == 0 })
			})
		}
	}
}

// Octets of the other protocol that come before it was accepted end it; no answer of ours stands amid it.
func TestFrameBeforeTheUpgrade(t *testing.T) {
	for _, way := range connections {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
			conn, target, host := way.open(r)
			fmt.Fprintf(conn, "GET %s/ws HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
				"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n\x81\x85\x00\x00\x00\x00early", target, host)
			all := readAll(t, conn)
			if !strings.HasPrefix(all, "HTTP/1.1 101 ") || strings.Count(all, "HTTP/1.1 ") != 1 {
				t.Errorf("answer: %q", all)
			}
			if rec := r.last(1); rec.Status != 101 || len(r.records.all()) != 1 {
				t.Errorf("records: %+v", r.records.all())
			}
		})
	}
}

// A body that is not read to its end, with trailers to come, never becomes the next request either.
func TestUnreadBodyIsNoRequest(t *testing.T) {
	for _, way := range connections[:2] {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) {
				o.Snapshots = fixed("")
				o.Transport = roundTripper(func(req *http.Request) (*http.Response, error) {
					req.Body.Close() // as the transport does where it cannot connect
					return nil, errNotThere
				})
			})
			conn, target, host := way.open(r)
			smuggled := "GET " + target + "/smuggled HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
			body := strings.Repeat(smuggled, 600<<10/len(smuggled))
			go fmt.Fprintf(conn, "POST %s/x HTTP/1.1\r\nHost: %s\r\nTrailer: Sum\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\nSum: 1\r\n\r\n", target, host, len(body), body)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || resp.StatusCode != 502 || !resp.Close {
				t.Errorf("answer %v, %v", resp, err)
			}
			conn.Close()
			r.eventually("the end", func() bool { return r.server.Connections() == 0 })
			if all := r.records.all(); len(all) != 1 || all[0].Method != "POST" {
				t.Errorf("records: %+v", all)
			}
		})
	}
}

// Who speaks no HTTP through a tunnel, or waits for the other side to speak first, comes to a clean end, and a record
// says so.
func TestTunnelsWithoutHTTP(t *testing.T) {
	for name, octets := range map[string]string{"silent": "", "a TLS record that never ends": "\x16\x03\x01\x02"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.HeaderTimeout = 200 * time.Millisecond })
			conn := r.tunnelTo("a.example:25000")
			io.WriteString(conn, octets)
			if rest, err := io.ReadAll(conn); err != nil || len(rest) > 0 {
				t.Errorf("the tunnel ended with %q, %v", rest, err)
			}
			if rec := r.last(1); rec.Reason != policy.ReasonBadRequest || rec.Host != "a.example" || rec.Port != 25000 || rec.Error == "" {
				t.Errorf("record: %+v", rec)
			}
			if n := r.server.Tunnels(); n != 0 || len(r.site.Requests()) > 0 {
				t.Errorf("%d tunnels are open, and the origin saw %v", n, r.site.Requests())
			}
		})
	}
	t.Run("opened in advance and closed", func(t *testing.T) {
		r := newRig(t, nil)
		r.tunnelTo("a.example:443").Close()
		r.eventually("the end of the tunnel", func() bool { return r.server.Tunnels() == 0 })
		if all := r.records.all(); len(all) > 0 {
			t.Errorf("records of a tunnel that was never used: %+v", all)
		}
	})
}

package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/http1test"
	"github.com/robotsproxy/robotsproxy/policy"
)

// sink is an origin that answers everything and remembers what it was asked for.
type sink struct {
	authority string

	mu   sync.Mutex
	seen []string // "METHOD host:port path?query"
}

func newSink(f *testing.F) *sink {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	s := &sink{authority: fmt.Sprintf("a.example:%d", l.Addr().(*net.TCPAddr).Port)}
	server := &http.Server{Handler: s, DisableGeneralOptionsHandler: true}
	go server.Serve(l)
	f.Cleanup(func() { server.Close() })
	return s
}

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	path, query, _ := strings.Cut(r.RequestURI, "?")
	s.seen = append(s.seen, r.Method+" "+r.Host+" "+path+"?"+query)
	s.mu.Unlock()
	io.Copy(w, r.Body)
}

func (s *sink) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen
	s.seen = nil
	return seen
}

// Whatever octets come, in front or in a tunnel: no panic, and what reaches the origin was judged, is recorded as it
// was sent, and is not disallowed. HOST in the octets stands for the origin's authority.
func FuzzRequestPath(f *testing.F) {
	seeds := []string{
		"GET http://HOST/page/1 HTTP/1.1\r\nHost: HOST\r\n\r\nGET http://HOST/private/x HTTP/1.1\r\nHost: HOST\r\n\r\n",
		"CONNECT HOST HTTP/1.1\r\nHost: HOST\r\n\r\nGET /x/../private/ HTTP/1.1\r\nHost: HOST\r\n\r\n",
		"POST http://HOST/up?x HTTP/1.1\r\nHost: HOST\r\nContent-Length: 5\r\n\r\nhelloGET http://HOST/private HTTP/1.0\r\n\r\n",
		"POST http://HOST/up HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n5;x\r\nhello\r\n0\r\nX: y\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: HOST\r\n\r\n",
		"GET /ws HTTP/1.1\r\nHost: HOST\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
	}
	for _, octets := range seeds {
		f.Add([]byte(octets))
	}
	for _, row := range targetTricks {
		f.Add([]byte("GET http://HOST" + row.target + " HTTP/1.1\r\nHost: HOST\r\n\r\n"))
	}
	for _, row := range http1test.Malformed {
		fit := strings.NewReplacer(" / ", " http://HOST/up ", "Host: a\r", "Host: HOST\r")
		f.Add([]byte(fit.Replace(http1test.Get + row.Bytes)))
	}
	origin := newSink(f)
	r := newRig(f, func(o *Options) {
		o.IdleTimeout, o.HeaderTimeout = 2*time.Millisecond, 15*time.Millisecond
		o.Snapshots, o.Query, o.Transport = fixed(disallow), audit.QueryKeep, onlyTo{origin.authority, o.Transport}
	})
	sent := make(map[string]int) // of all runs: what is cut off may reach the origin late
	f.Fuzz(func(t *testing.T, octets []byte) {
		if len(octets) > 4<<10 {
			return // records cut what is long
		}
		r.t = t
		r.records.reset()
		r.send(t, strings.ReplaceAll(string(octets), "HOST", origin.authority))
		r.eventually("the end of all requests", func() bool { return r.server.Active() == 0 && r.server.Tunnels() == 0 })
		countSent(t, sent, r.records.all())
		for _, line := range origin.take() {
			if sent[line]--; sent[line] < 0 || strings.Contains(line, " /private/") {
				t.Fatalf("%q: the origin saw %q; records: %+v", octets, line, r.records.all())
			}
		}
	})
}

// onlyTo is a transport that reaches one authority, so that no made-up name is looked up.
type onlyTo struct {
	authority string
	http.RoundTripper
}

func (o onlyTo) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != o.authority {
		return nil, errNotThere
	}
	return o.RoundTripper.RoundTrip(r)
}

// send writes octets on a connection and reads the responses until the server closes it, or leaves soon after.
func (r *rig) send(t *testing.T, octets string) {
	conn, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	go func() {
		io.WriteString(conn, octets)
		time.Sleep(20 * time.Millisecond) // past both time-outs: the rest of a body is missing
		conn.(*net.TCPConn).CloseWrite()
	}()
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%q: the connection does not end", octets)
	}
}

// countSent counts what was sent, in the words of sink.
func countSent(t *testing.T, sent map[string]int, records []audit.Record) {
	for _, rec := range records {
		if rec.Reason == policy.ReasonInternal {
			t.Fatalf("a panic: %s", rec.Error)
		}
		if !rec.SentAt.IsZero() {
			sent[fmt.Sprintf("%s %s:%d %s?%s", rec.Method, rec.Host, rec.Port, rec.Path, rec.Query)]++
		}
	}
}

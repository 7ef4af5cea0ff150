package robots_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// Toxiproxy now and then leaves behind what it had read for a connection that was reset meanwhile.
func TestMain(m *testing.M) {
	const toxiproxy = "github.com/Shopify/toxiproxy/v2"
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(toxiproxy+"/toxics.(*ToxicStub).Run"), goleak.IgnoreAnyFunction(toxiproxy+".(*ToxicLink).read"))
}

// ample is a time that no fetch needs, on however slow a machine.
const ample = time.Minute

func mustOrigin(tb testing.TB, s string) origin.Origin {
	tb.Helper()
	o, err := origin.Parse(s)
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

// newFetcher returns a Fetcher for which site is the whole web. Edit changes its options, and may be nil.
func newFetcher(tb testing.TB, site *robotstest.Site, edit func(*fetch.Options)) *fetch.Fetcher {
	tb.Helper()
	transport := site.Transport()
	tb.Cleanup(transport.CloseIdleConnections)
	return newFetcherOver(tb, transport, edit)
}

func newFetcherOver(tb testing.TB, transport http.RoundTripper, edit func(*fetch.Options)) *fetch.Fetcher {
	tb.Helper()
	o := fetch.Options{Transport: transport, UserAgent: "robotsproxy/test", Timeout: ample}
	if edit != nil {
		edit(&o)
	}
	f, err := fetch.New(o)
	if err != nil {
		tb.Fatalf("NewFetcher(%+v): %v", o, err)
	}
	return f
}

func fetched(tb testing.TB, f *fetch.Fetcher, from string) *robots.Snapshot {
	tb.Helper()
	snap, err := f.Fetch(context.Background(), fetch.Request{Origin: mustOrigin(tb, from)})
	if err != nil {
		tb.Fatalf("Fetch(%s): %v", from, err)
	}
	return robots.Parsed(snap)
}

// allowed is what a policy makes of snap.
func allowed(snap *robots.Snapshot, path string) bool {
	return snap.Availability != robots.Unreachable && snap.Rules.Agent("TestBot").Verdict(path).Allowed
}

// outline is what matters of snap, in a line: state, status, cause, and whether /open and /private may be fetched.
func outline(snap *robots.Snapshot) string {
	words := []string{snap.State(), fmt.Sprint(snap.Status)}
	if snap.Cause != "" {
		words = append(words, snap.Cause)
	}
	for _, path := range []string{"/open", "/private"} {
		if allowed(snap, path) {
			words = append(words, path)
		}
	}
	return strings.Join(words, " ")
}

// quiet is for servers whose faults are meant.
var quiet = log.New(io.Discard, "", 0)

const file = "User-agent: *\nDisallow: /private\n"

// serveRaw runs a server of connections, and returns its address. Serve need not close what it gets.
func serveRaw(tb testing.TB, serve func(*net.TCPConn)) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var running sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			running.Go(func() {
				defer conn.Close()
				serve(conn.(*net.TCPConn))
			})
		}
	})
	tb.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, conn := range conns {
			conn.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return l.Addr().String()
}

// answer is a serve of serveRaw that reads a request and writes text, whatever it is.
func answer(text string) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		readHead(conn)
		_, _ = conn.Write([]byte(text))
	}
}

func readHead(conn net.Conn) {
	var head []byte
	for octets := make([]byte, 4096); !strings.Contains(string(head), "\r\n\r\n"); {
		n, err := conn.Read(octets)
		if err != nil {
			return
		}
		head = append(head, octets[:n]...)
	}
}

// hang waits until the other side leaves.
func hang(conn *net.TCPConn) {
	octets := make([]byte, 4096)
	for {
		if _, err := conn.Read(octets); err != nil {
			return
		}
	}
}

// found is an Answer as an injected Fetch makes it.
func found(o origin.Origin, body string, ttl time.Duration) *robots.Answer {
	now := time.Now()
	return &robots.Answer{Origin: o, Availability: robots.Found, Status: 200, Fetched: now, Expires: now.Add(ttl), Body: []byte(body)}
}

func failed(o origin.Origin, ttl time.Duration) *robots.Answer {
	now := time.Now()
	return &robots.Answer{Origin: o, Fetched: now, Expires: now.Add(ttl), Cause: "connection_refused"}
}

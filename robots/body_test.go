package robots_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

func gzipped(parts ...string) string {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	for _, part := range parts {
		_, _ = io.WriteString(w, part)
	}
	_ = w.Close()
	return out.String()
}

func TestGzip(t *testing.T) {
	site := robotstest.New(t)
	f := newFetcher(t, site, nil)
	whole := gzipped(file)
	corrupt := []byte(whole)
	corrupt[len(corrupt)-6] ^= 1 // of the checksum
	for _, row := range []struct {
		name   string
		coding []string
		body   string
		want   string
	}{
		{"9110 8.4.1.3/gzip", []string{"gzip"}, whole, "found 200 /open"},
		{"9110 8.4.1.3/x-gzip", []string{"X-GZip"}, whole, "found 200 /open"},
		{"9110 8.4.1.3/several members", []string{"gzip"}, gzipped("User-agent: *\n") + gzipped("Disallow: /private\n"), "found 200 /open"},
		{"9110 8.4.1.3/empty file", []string{"gzip"}, gzipped(), "empty 200 /open /private"},
		{"9110 8.4.1.3/not even a header", []string{"gzip"}, "", "empty 200 /open /private"},
		{"9110 12.5.3/identity", []string{"identity"}, file, "found 200 /open"},
		{"2.3.1.4/cut in the middle", []string{"gzip"}, whole[:len(whole)/2], "unreachable 0 http_response_incomplete"},
		{"2.3.1.4/cut in the header", []string{"gzip"}, whole[:5], "unreachable 0 http_response_incomplete"},
		{"2.3.1.4/wrong checksum", []string{"gzip"}, string(corrupt), "unreachable 0 http_response_content_coding"},
		{"2.3.1.4/no gzip", []string{"gzip"}, file, "unreachable 0 http_response_content_coding"},
		{"2.3.1.4/corrupt", []string{"gzip"}, whole[:10] + "\xff\xff\xff\xff\xff\xff\xff\xff", "unreachable 0 http_response_content_coding"},
		{"9110 8.4/unknown coding", []string{"br"}, file, "unreachable 0 http_response_content_coding"},
		{"9110 8.4/two codings", []string{"gzip, br"}, whole, "unreachable 0 http_response_content_coding"},
		{"9110 8.4/two codings in two fields", []string{"gzip", "br"}, whole, "unreachable 0 http_response_content_coding"},
	} {
		t.Run(row.name, func(t *testing.T) {
			site.SetRobots("", robotstest.Robots{Body: row.body, Header: http.Header{"Content-Encoding": row.coding}})
			if got := outline(fetched(t, f, "http://a.example")); got != row.want {
				t.Errorf("Fetch = %s, want %s", got, row.want)
			}
		})
	}
}

// TestMaxSize cuts at whole lines (2.5): a rule of which the half is read would disallow what nobody disallowed.
func TestMaxSize(t *testing.T) {
	const size = 500 << 10
	last := "Disallow: /pri" // and then "vate"
	// padded is a file whose octet number n is the last of "Disallow: /pri".
	padded := func(n int) string {
		head := "User-agent: *\nDisallow: /x\n#"
		return head + strings.Repeat("-", n-len(head)-len(last)-1) + "\n" + last
	}
	site := robotstest.New(t)
	f := newFetcher(t, site, nil)
	for _, row := range []struct {
		name, body, want string
		kept             int
	}{
		{"2.5/one octet less", padded(size - 1), "found 200 /open", size - 1},
		{"2.5/exactly", padded(size), "found 200 /open", size},
		{"2.5/exactly, and then the line's end", padded(size) + "\n", "oversize 200 /open /private", size},
		{"2.5/exactly, with the line's end", padded(size-1) + "\n" + "Disallow: /open\n", "oversize 200 /open", size},
		{"2.5/one octet more", padded(size) + "v", "oversize 200 /open /private", size},
		{"2.5/cut in half", padded(size) + "vate\nDisallow: /open\n", "oversize 200 /open /private", size},
		{"2.5/the rest does not count", padded(size-9) + "\nDisallow: /open\n", "oversize 200 /open", size},
	} {
		for _, coding := range []string{"", "gzip"} {
			t.Run(row.name+coding, func(t *testing.T) {
				body := row.body
				if coding != "" {
					body = gzipped(body)
				}
				site.SetRobots("", robotstest.Robots{Body: body, Header: http.Header{"Content-Encoding": {coding}}})
				snap := fetched(t, f, "http://a.example")
				if got := outline(snap); got != row.want {
					t.Errorf("Fetch = %s, want %s", got, row.want)
				}
				if allowed(snap, "/x") {
					t.Error("the rules before the end do not count")
				}
				if string(snap.Body) != row.body[:row.kept] {
					t.Errorf("Body has %d octets, want the first %d", len(snap.Body), row.kept)
				}
				sum := sha256.Sum256([]byte(row.body[:row.kept]))
				if want := hex.EncodeToString(sum[:]); snap.SHA256 != want {
					t.Errorf("SHA256 = %s, want %s", snap.SHA256, want)
				}
				if snap.Truncated != (len(row.body) > size) {
					t.Errorf("Truncated = %v", snap.Truncated)
				}
			})
		}
	}
}

// TestLength has framing that lies.
func TestLength(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\n"
	for _, row := range []struct{ name, answer, want string }{
		{"9112 6.3/until the end of the connection", head + "\r\n" + file, "found 200 /open"},
		{"9112 6.3/HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\n" + file, "found 200 /open"},
		{"9112 8/Content-Length longer than the body", head + "Content-Length: 1000\r\n\r\n" + file, "unreachable 0 http_response_incomplete"},
		{"9112 6.3/Content-Length shorter than the body", head + fmt.Sprintf("Connection: close\r\nContent-Length: %d\r\n\r\n", len(file)) + file + "Disallow: /open\n", "found 200 /open"},
		{"9112 8/no last chunk", head + "Transfer-Encoding: chunked\r\n\r\n4\r\nUser\r\n", "unreachable 0 http_response_incomplete"},
		{"9112 7.1/a size that is none", head + "Transfer-Encoding: chunked\r\n\r\nzz\r\nUser\r\n", "unreachable 0 http_response_transfer_coding"},
		{"9112 7.1/a size that overflows", head + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nUser\r\n", "unreachable 0 http_response_transfer_coding"},
		{"9112 6.1/unknown coding", head + "Transfer-Encoding: rot13\r\n\r\n" + file, "unreachable 0 http_response_transfer_coding"},
		{"9112 6.3/two lengths", head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n" + file, "unreachable 0 http_protocol_error"},
		{"9112 6.3/a length that is none", head + "Content-Length: -1\r\n\r\n" + file, "unreachable 0 http_protocol_error"},
		{"9110 15.2/103 before the answer", "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + head + "\r\n" + file, "found 200 /open"},
		{"9110 15.2/1xx without end", strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 10_000), "unreachable 0 http_response_header_section_size"},
		{"9110 15.2.2/101 that was not asked for", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n" + file, "unreachable 101 destination_unavailable"},
	} {
		t.Run(row.name, func(t *testing.T) {
			transport := &http.Transport{MaxResponseHeaderBytes: 64 << 10}
			defer transport.CloseIdleConnections()
			addr := serveRaw(t, answer(row.answer))
			if got := outline(fetched(t, newFetcherOver(t, transport, nil), "http://"+addr)); got != row.want {
				t.Errorf("Fetch = %s, want %s", got, row.want)
			}
		})
	}
}

// bomb writes an answer of zeros without end, compressed a thousandfold.
func bomb(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Encoding", "gzip")
	zip := gzip.NewWriter(w)
	zeros := make([]byte, 1<<20)
	for {
		if _, err := zip.Write(zeros); err != nil {
			return
		}
	}
}

// TestEndless reads a little of what has no end, and keeps no more than that.
func TestEndless(t *testing.T) {
	site := robotstest.New(t)
	f := newFetcher(t, site, nil)
	for name, handler := range map[string]http.HandlerFunc{"plain": robotstest.Endless, "gzip": bomb} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(name+" "+scheme, func(t *testing.T) {
				site.SetRobots("", robotstest.Robots{Handler: handler})
				fetched(t, f, scheme+"://warm-up.example")
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				snap := fetched(t, f, scheme+"://a.example")
				runtime.ReadMemStats(&after)
				if !snap.Truncated || len(snap.Body) != 500<<10 {
					t.Errorf("Fetch kept %d octets, Truncated %v, want 500 KiB and true", len(snap.Body), snap.Truncated)
				}
				// All that was allocated, the server's part too: the body, what it grew through, its rules, buffers.
				if got := after.TotalAlloc - before.TotalAlloc; got > 16<<20 {
					t.Errorf("one fetch allocated %d KiB, want at most 16 MiB", got>>10)
				}
			})
		}
	}
}

// TestDrip is stopped by the time-out, however steadily the octets come.
func TestDrip(t *testing.T) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	f := newFetcherOver(t, transport, func(o *fetch.Options) { o.Timeout = time.Second })
	addr := serveRaw(t, func(conn *net.TCPConn) {
		readHead(conn)
		_, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
		for err == nil {
			time.Sleep(time.Millisecond)
			_, err = io.WriteString(conn, "#")
		}
	})
	if got, want := outline(fetched(t, f, "http://"+addr)), "unreachable 0 http_response_timeout"; got != want {
		t.Errorf("Fetch = %s, want %s", got, want)
	}
}

// TestEmptyMembers reads a gzip that never comes to an octet of content: the limit ends it, before the time does.
func TestEmptyMembers(t *testing.T) {
	site := robotstest.New(t)
	var member bytes.Buffer
	if err := gzip.NewWriter(&member).Close(); err != nil {
		t.Fatal(err)
	}
	site.SetRobots("", robotstest.Robots{Handler: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		many := bytes.Repeat(member.Bytes(), 1000)
		for r.Context().Err() == nil {
			if _, err := w.Write(many); err != nil {
				return
			}
		}
	}})
	snap := fetched(t, newFetcher(t, site, nil), "http://a.example")
	if snap.Availability != robots.Unreachable || snap.Cause != "http_response_incomplete" {
		t.Errorf("Fetch = %v, cause %q, %v; want Unreachable and http_response_incomplete", snap.Availability, snap.Cause, snap.Err)
	}
}

package robots_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// flood writes head and then part without end.
func flood(head string, part []byte) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		readHead(conn)
		_, err := io.WriteString(conn, head)
		for err == nil {
			_, err = conn.Write(part)
		}
	}
}

// bombPart is a gzip member of a mebibyte of text, at a thousandth of its size.
func bombPart(text string) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(bytes.Repeat([]byte(text), 1<<20/len(text)))
	_ = w.Close()
	return out.Bytes()
}

// shortRules is 600 KiB of lines, of which none is like another.
func shortRules(line string) []byte {
	out := []byte("User-agent:a\n")
	for i := 0; len(out) < 600<<10; i++ {
		out = fmt.Appendf(out, line, i)
	}
	return out
}

type hostile struct {
	name  string
	serve func(*net.TCPConn)
	want  string
}

// most is what a fetch may allocate.
func (h hostile) most() uint64 {
	if strings.HasPrefix(h.name, "rules:") {
		return 24 << 20
	}
	return 2 << 20
}

// TestMemoryOfFetch has origins send as much as they can, and measures all that the fetch allocates, whether it is
// still held at the end or not. The origins' own part is made before. What compiling takes comes on top for files that
// are all rules, but only one a processor is compiled at a time.
func TestMemoryOfFetch(t *testing.T) {
	if raceEnabled {
		t.Skip("it measures memory")
	}
	const head = "HTTP/1.1 200 OK\r\n"
	rule := "User-agent: b\nDisallow: /" + strings.Repeat("x", 50) + "\n"
	many := func(s string) []byte { return bytes.Repeat([]byte(s), 64<<10/len(s)) }
	for _, row := range []hostile{
		{"a line without end", flood(head+"\r\n", many("x")), "oversize 200 /open /private"},
		{"empty lines without end", flood(head+"\r\n", many("\n")), "oversize 200 /open /private"},
		{"rules: long ones without end", flood(head+"\r\n", many(rule)), "oversize 200 /open /private"},
		{"rules: short ones without end", flood(head+"\r\n", shortRules("Allow:/%x\n")), "oversize 200 /open /private"},
		{"rules: groups without end", flood(head+"\r\n", shortRules("User-agent:%x\nAllow:/%[1]x\n")), "oversize 200 /open /private"},
		{"a length that is more than all", flood(head+"Content-Length: 9000000000000000000\r\n\r\n", many("x")), "oversize 200 /open /private"},
		{"chunks of an octet", flood(head+"Transfer-Encoding: chunked\r\n\r\n", many("1\r\n\n\r\n")), "oversize 200 /open /private"},
		{"a gzip bomb", flood(head+"Content-Encoding: gzip\r\n\r\n", bombPart("\n")), "oversize 200 /open /private"},
		{"gzip without content", flood(head+"Content-Encoding: gzip\r\n\r\n", []byte(gzipped())), "unreachable 0 http_response_incomplete"},
		{"br", flood(head+"Content-Encoding: br\r\n\r\n", many("x")), "unreachable 0 http_response_content_coding"},
		{"zstd", flood(head+"Content-Encoding: zstd\r\n\r\n", many("x")), "unreachable 0 http_response_content_coding"},
		{"gzip in gzip", flood(head+"Content-Encoding: gzip, gzip\r\n\r\n", many("x")), "unreachable 0 http_response_content_coding"},
		{"fields without end", flood(head, many("X: x\r\n")), "unreachable 0 http_response_header_section_size"},
		{"a field without end", flood(head+"X: ", many("x")), "unreachable 0 http_response_header_section_size"},
		{"a status without end", flood("HTTP/1.1 200 ", many("x")), "unreachable 0 http_response_header_section_size"},
		{"103 without end", flood("", many("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")), "unreachable 0 http_response_header_section_size"},
		{"404 without end", flood("HTTP/1.1 404 Not Found\r\n\r\n", many("x")), "unavailable 404 /open /private"},
		{"503 without end", flood("HTTP/1.1 503 Busy\r\n\r\n", many("x")), "unreachable 503 destination_unavailable"},
		{"a redirect with a body without end", flood("HTTP/1.1 301 Moved\r\nLocation: /robots.txt\r\n\r\n", many("x")), "unavailable 301 /open /private"},
		{"trailers without end", flood(head+"Transfer-Encoding: chunked\r\n\r\n0\r\n", many("X: x\r\n")), "unreachable 0 http_response_transfer_coding"},
	} {
		t.Run(row.name, func(t *testing.T) {
			transport := &http.Transport{MaxResponseHeaderBytes: 64 << 10, DisableCompression: true}
			t.Cleanup(transport.CloseIdleConnections)
			f := newFetcherOver(t, transport, func(o *fetch.Options) { o.Timeout = 20 * time.Second })
			from := raw(t, row.serve)
			least := ^uint64(0)
			for range 3 { // the least, since other tests' servers may still be ending
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				snap := fetched(t, f, from)
				runtime.ReadMemStats(&after)
				if got := outline(snap); got != row.want {
					t.Fatalf("Fetch = %s, want %s; the error: %v", got, row.want, snap.Err)
				}
				least = min(least, after.TotalAlloc-before.TotalAlloc)
			}
			t.Logf("%d KiB", least>>10)
			if least > row.most() {
				t.Errorf("a fetch allocates %d KiB, want %d at most", least>>10, row.most()>>10)
			}
		})
	}
}

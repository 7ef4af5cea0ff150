package http1

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/internal/http1test"
)

func TestWellFormedRequests(t *testing.T) {
	for name, octets := range http1test.WellFormed {
		t.Run(name, func(t *testing.T) {
			for _, step := range []int{1, 7, 1 << 20} {
				var f scanner
				if n, m := scanBy(&f, octets, step); m != nil {
					t.Fatalf("scan of %q, %d octets at a time, stops at %d: %v", octets, step, n, m)
				}
				if f.phase != blank || f.chunked {
					t.Errorf("behind %q something is still awaited: %+v", octets, f)
				}
			}
		})
	}
}

func TestMalformedRequests(t *testing.T) {
	for name, row := range http1test.Malformed {
		t.Run(name, func(t *testing.T) {
			for _, step := range []int{1, 7, 1 << 20} {
				var f scanner
				_, m := scanBy(&f, row.Bytes, step)
				if m == nil || !strings.Contains(m.reason, row.Reason) {
					t.Fatalf("scan of %.200q, %d octets at a time: %v; want %q", row.Bytes, step, m, row.Reason)
				}
				if (m.body == 1) != strings.HasPrefix(row.Bytes, http1test.Post) {
					t.Errorf("scan of %.200q: the fault is in the body of request %d", row.Bytes, m.body)
				}
			}
		})
	}
}

func TestBytesAfterConnect(t *testing.T) {
	var f scanner
	for _, octets := range []string{"CONNECT a:443 HTTP/1.1\r\n\r\n", "\x16\x03\n\x00", "\r\r"} {
		if n, m := f.scan([]byte(octets)); n != len(octets) || m != nil {
			t.Errorf("scan(%q) = %d, %v", octets, n, m)
		}
	}
}

// scanBy scans octets in pieces and returns how many were sound.
func scanBy(f *scanner, octets string, step int) (int, *SyntaxError) {
	done := 0
	for piece := range slices.Chunk([]byte(octets), step) {
		n, m := f.scan(piece)
		done += n
		if m != nil {
			return done, m
		}
	}
	return done, nil
}

// FuzzScanner checks that net/http accepts each request that the scanner accepts, and that it ends at the same byte.
func FuzzScanner(f *testing.F) {
	for _, octets := range http1test.WellFormed {
		f.Add([]byte(octets + http1test.Get))
	}
	for _, row := range http1test.Malformed {
		f.Add([]byte(http1test.Get + row.Bytes))
	}
	f.Fuzz(func(t *testing.T, octets []byte) {
		sound, ends := boundaries(octets)
		raw := bytes.NewReader(octets[:sound])
		in := bufio.NewReader(raw)
		for i := 0; ; i++ {
			skipEmptyLine(in)
			req, err := http.ReadRequest(in)
			if err != nil && i < len(ends) {
				t.Fatalf("net/http refuses request %d of %q: %v", i+1, octets, err)
			}
			if err != nil || req.Method == http.MethodConnect {
				return
			}
			if _, err := io.Copy(io.Discard, req.Body); err != nil {
				return
			}
			at := sound - raw.Len() - in.Buffered()
			if i >= len(ends) || at != ends[i] {
				t.Fatalf("net/http reads a request that ends at %d of %q; requests end at %v", at, octets, ends)
			}
		}
	})
}

// boundaries returns how many octets are sound, and where each complete request in them ends.
func boundaries(octets []byte) (sound int, ends []int) {
	var f scanner
	for i := range octets {
		ending := f.phase == lineFeed && f.after == blank || f.phase == content && f.left == 1
		if _, m := f.scan(octets[i : i+1]); m != nil {
			return i, ends
		}
		if ending {
			ends = append(ends, i+1)
		}
	}
	return len(octets), ends
}

// skipEmptyLine skips an empty line after a POST, as net/http's server does.
func skipEmptyLine(in *bufio.Reader) {
	if next, _ := in.Peek(2); string(next) == "\r\n" {
		in.Discard(2)
	}
}

// head is what a browser sends.
var head = fmt.Sprintf("GET http://a.example/page/1?q=%s HTTP/1.1\r\nHost: a.example\r\nUser-Agent: %s\r\nAccept: %s\r\n"+
	"Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br\r\nConnection: keep-alive\r\nCookie: %s\r\n\r\n",
	strings.Repeat("x", 40), "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
	"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", strings.Repeat("y", 60))

func BenchmarkScanner(b *testing.B) {
	octets := []byte(head)
	b.SetBytes(int64(len(octets)))
	b.ReportAllocs()
	var f scanner
	for b.Loop() {
		if n, m := f.scan(octets); n != len(octets) || m != nil {
			b.Fatal(n, m)
		}
	}
}

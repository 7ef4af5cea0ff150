package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

const get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

// post is a request with a body in chunks, which are to follow.
const post = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"

// soundRequests are complete: behind each a new one can begin.
var soundRequests = map[string]string{
	"3/request line and Host":               get,
	"3/absolute-form":                       "GET http://a/?x=[y] HTTP/1.1\r\nHost: a\r\n\r\n",
	"3.2/HTTP/1.0 has no Host":              "GET / HTTP/1.0\r\n\r\n",
	"2.2/an empty line behind a POST":       "POST / HTTP/1.1\r\nHost: a\r\n\r\n\r\n" + get,
	"5/empty value, no space, tab":          "GET / HTTP/1.1\r\nHost:a\r\nX:\r\nY:\t1 \t\r\n\r\n",
	"5/octets beyond ASCII":                 "GET /é HTTP/1.1\r\nHost: a\r\nX: \xff\r\n\r\n",
	"6.2/Content-Length":                    "POST / HTTP/1.1\r\nhost: a\r\nCONTENT-LENGTH: \t005 \r\n\r\n\r\n\x00\r\n",
	"6.2/Content-Length of nothing":         "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
	"7.1/chunks":                            post + "5\r\nab\r\nc\r\n00A\r\n0123456789\r\n0\r\n\r\n",
	"7.1/the last chunk has many zeros":     post + "000\r\n\r\n",
	"7.1.1/extensions":                      post + "1;a=b;c=\"d e\"\r\nx\r\n0;z\r\n\r\n",
	"7.1.1/octet by octet":                  post + strings.Repeat("1;a=b\r\nx\r\n", 1000) + "0\r\n\r\n",
	"7.1.2/trailers":                        post + "0\r\nChecksum: 1\r\nX: y\r\n\r\n",
	"6.1/Chunked in any case":               strings.Replace(post, "chunked", "CHUNKED", 1) + "0\r\n\r\n",
	"5/a name that begins like a known":     "GET / HTTP/1.1\r\nHost: a\r\nHostess: b\r\nContent-Lengths: x\r\nX-Content-Length: y\r\n\r\n",
	"5/a name longer than any that we know": "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("x", 300) + ": 1\r\n\r\n",
}

// brokenRequests are refused, and by what they hold is known where.
var brokenRequests = map[string]struct{ octets, why string }{
	"2.2/bare LF behind the request line": {"GET / HTTP/1.1\nHost: a\r\n\r\n", "CR LF"},
	"2.2/bare LF behind a field":          {"GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", "CR LF"},
	"2.2/bare LF for the empty line":      {"GET / HTTP/1.1\r\nHost: a\r\n\n", "token"},
	"2.2/bare CR in a value":              {"GET / HTTP/1.1\r\nHost: a\rX: y\r\n\r\n", "CR stands alone"},
	"2.2/bare CR at the end":              {"GET / HTTP/1.1\r\nHost: a\r\n\rx", "CR stands alone"},
	"2.2/white space before the first":    {"GET / HTTP/1.1\r\n Host: a\r\n\r\n", "folded"},
	"2.2/an empty line before":            {"\r\n" + get, "first line"},
	"2.2/bare LF before":                  {"\n" + get, "first line"},
	"3/two spaces":                        {"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", "one space"},
	"3/a tab":                             {"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", "one space"},
	"3/space in the target":               {"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", "version"},
	"3/no version (HTTP/0.9)":             {"GET /\r\n", "one space"},
	"3/method is no token":                {"G(T / HTTP/1.1\r\nHost: a\r\n\r\n", "method"},
	"3/NUL in the target":                 {"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n", "one space"},
	"3/space behind the version":          {"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", "version"},
	"2.3/HTTP/1.2":                        {"GET / HTTP/1.2\r\nHost: a\r\n\r\n", "neither"},
	"2.3/HTTP/1.10":                       {"GET / HTTP/1.10\r\nHost: a\r\n\r\n", "neither"},
	"2.3/HTTP/2.0":                        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "neither"},
	"2.3/lower case":                      {"GET / http/1.1\r\nHost: a\r\n\r\n", "version"},
	"3.2/no Host":                         {"GET / HTTP/1.1\r\n\r\n", "host is missing"},
	"3.2/two Hosts":                       {"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "host stands there twice"},
	"3.2/two Hosts in HTTP/1.0":           {"GET / HTTP/1.0\r\nHost: a\r\nhOST: b\r\n\r\n", "host stands there twice"},
	"5.1/space before the colon":          {"GET / HTTP/1.1\r\nHost : a\r\n\r\n", "token"},
	"5.1/no name":                         {"GET / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n", "token"},
	"5.1/no colon":                        {"GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", "token"},
	"5.1/a name beyond ASCII":             {"GET / HTTP/1.1\r\nHost: a\r\nX\xa0: y\r\n\r\n", "token"},
	"5.2/a folded line":                   {"GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n z\r\n\r\n", "folded"},
	"5.2/folded by a tab":                 {"GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n\tz\r\n\r\n", "folded"},
	"5.5/NUL in a value":                  {"GET / HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n", "control"},
	"5.5/DEL in a value":                  {"GET / HTTP/1.1\r\nHost: a\r\nX: \x7f\r\n\r\n", "control"},
	"6.3/Content-Length and chunks":       {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "beside"},
	"6.3/chunks and Content-Length":       {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", "beside"},
	"6.3/two Content-Lengths":             {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", "twice"},
	"6.3/two of one value":                {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n", "twice"},
	"6.3/a list of lengths":               {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\n", "digits"},
	"6.2/signed":                          {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\n", "digits"},
	"6.2/negative":                        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -3\r\n\r\n", "digits"},
	"6.2/underscore":                      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1_0\r\n\r\n", "digits"},
	"6.2/hexadecimal":                     {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x3\r\n\r\n", "digits"},
	"6.2/empty":                           {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", "number"},
	"6.2/more than can be":                {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551617\r\n\r\n", "number"},
	"6.2/more than the word holds":        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " + strings.Repeat("0", 30) + "\r\n\r\n", "number"},
	"6.1/another coding":                  {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "chunked alone"},
	"6.1/chunked twice":                   {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n", "chunked alone"},
	"6.1/chunked in two fields":           {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "twice"},
	"6.1/identity":                        {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n", "chunked alone"},
	"6.1/quoted":                          {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n", "chunked alone"},
	"6.1/vertical tab":                    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n", "control"},
	"6.1/empty":                           {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\r\n", "chunked alone"},
	"6.1/in HTTP/1.0":                     {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.0"},
	"7.1/no size":                         {post + "\r\n", "hexadecimal"},
	"7.1/0x":                              {post + "0x1\r\n", "hexadecimal"},
	"7.1/signed":                          {post + "+1\r\n", "hexadecimal"},
	"7.1/space before the size":           {post + " 1\r\n", "hexadecimal"},
	"7.1/space behind the size":           {post + "1 \r\n", "hexadecimal"},
	"7.1/overflow":                        {post + "10000000000000001\r\n", "too large"},
	"7.1/bare LF behind the size":         {post + "1\nx\r\n", "hexadecimal"},
	"7.1/bare LF behind an extension":     {post + "1;x\nx\r\n", "CR LF"},
	"7.1/longer than the size":            {post + "1\r\nxy\r\n", "longer"},
	"7.1/bare LF behind a chunk":          {post + "1\r\nx\n0\r\n\r\n", "longer"},
	"7.1/CR and no LF behind a chunk":     {post + "1\r\nx\rX", "CR stands alone"},
	"7.1.1/an extension without end":      {post + "1;" + strings.Repeat("x", maxSection), "more than"},
	"7.1.1/extensions for their own sake": {post + strings.Repeat("1;"+strings.Repeat("x", 60)+"\r\nx\r\n", 250), "around them"},
	"7.1.2/trailers without end":          {post + "0\r\n" + strings.Repeat("X: y\r\n", maxSection/6+1), "more than"},
	"7.1.2/Content-Length in a trailer":   {post + "0\r\nContent-Length: 3\r\n\r\n", "trailers"},
	"7.1.2/Transfer-Encoding in one":      {post + "0\r\ntransfer-encoding: chunked\r\n\r\n", "trailers"},
	"7.1.2/Host in one":                   {post + "0\r\nHost: b\r\n\r\n", "trailers"},
	"7.1.2/a folded trailer":              {post + "0\r\nX: y\r\n z\r\n\r\n", "folded"},
	"3/a head without end":                {"GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X: y\r\n", maxHead/6), "more than"},
	"3/a target without end":              {"GET /" + strings.Repeat("x", maxHead), "more than"},
	"TLS":                                 {"\x16\x03\x01\x02\x00\x01", "it is TLS"},
	"SOCKS":                               {"\x05\x01\x00", "it is SOCKS"},
	"SSH":                                 {"SSH-2.0-OpenSSH_9.6\r\n", "one space"},
	"SMTP":                                {"EHLO client.example\r\n", "one space"},
}

func TestSoundRequests(t *testing.T) {
	for name, octets := range soundRequests {
		t.Run(name, func(t *testing.T) {
			for _, step := range []int{1, 7, 1 << 20} {
				var f framing
				if n, m := scanBy(&f, octets, step); m != nil {
					t.Fatalf("scan of %q, %d octets at a time, stops at %d: %v", octets, step, n, m)
				}
				if f.phase != blank || f.chunks {
					t.Errorf("behind %q something is still awaited: %+v", octets, f)
				}
			}
		})
	}
}

func TestBrokenRequests(t *testing.T) {
	for name, row := range brokenRequests {
		t.Run(name, func(t *testing.T) {
			for _, step := range []int{1, 7, 1 << 20} {
				var f framing
				_, m := scanBy(&f, row.octets, step)
				if m == nil || !strings.Contains(m.why, row.why) {
					t.Fatalf("scan of %.200q, %d octets at a time: %v; want %q", row.octets, step, m, row.why)
				}
				if (m.body == 1) != strings.HasPrefix(row.octets, post) {
					t.Errorf("scan of %.200q: the fault is in the body of request %d", row.octets, m.body)
				}
			}
		})
	}
}

func TestFramingOfATunnel(t *testing.T) {
	var f framing
	for _, octets := range []string{"CONNECT a:443 HTTP/1.1\r\n\r\n", "\x16\x03\n\x00", "\r\r"} {
		if n, m := f.scan([]byte(octets)); n != len(octets) || m != nil {
			t.Errorf("scan(%q) = %d, %v", octets, n, m)
		}
	}
}

// scanBy scans octets in pieces and returns how many were sound.
func scanBy(f *framing, octets string, step int) (int, *malformed) {
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

// What is sound is read by net/http as the same requests, each of which ends at the same octet; net/http may only refuse
// more.
func FuzzFraming(f *testing.F) {
	for _, octets := range soundRequests {
		f.Add([]byte(octets + get))
	}
	for _, row := range brokenRequests {
		f.Add([]byte(get + row.octets))
	}
	f.Fuzz(func(t *testing.T, octets []byte) {
		sound, ends := boundaries(octets)
		raw := bytes.NewReader(octets[:sound])
		in := bufio.NewReader(raw)
		for i := 0; ; i++ {
			skipEmptyLine(in)
			req, err := http.ReadRequest(in)
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
	var f framing
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

// skipEmptyLine does as net/http's server does behind a POST.
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

func BenchmarkFraming(b *testing.B) {
	octets := []byte(head)
	b.SetBytes(int64(len(octets)))
	b.ReportAllocs()
	var f framing
	for b.Loop() {
		if n, m := f.scan(octets); n != len(octets) || m != nil {
			b.Fatal(n, m)
		}
	}
}

package robotstest_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// dial returns a connection to the plain port.
func dial(t *testing.T, site *robotstest.Site) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", site.Port()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	return conn
}

var href = regexp.MustCompile(`<a href="([^"]*)">`)

// crawl returns the targets found from "/" with all for which enter is false left out, sorted.
func crawl(t *testing.T, client *http.Client, base string, enter func(target string) bool) []string {
	queue := []string{"/"}
	for i := 0; i < len(queue); i++ {
		res, body := get(t, client, base+queue[i])
		if res.StatusCode != http.StatusOK {
			t.Errorf("Get(%s%s) = %d, want 200", base, queue[i], res.StatusCode)
		}
		for _, link := range href.FindAllStringSubmatch(body, -1) {
			if enter(link[1]) && !slices.Contains(queue, link[1]) {
				queue = append(queue, link[1])
			}
		}
	}
	slices.Sort(queue)
	return queue
}

func TestGraph(t *testing.T) {
	site, client := start(t)
	all := slices.Sorted(slices.Values(append(site.Pages(), site.Private()...)))
	if diff := cmp.Diff(all, crawl(t, client, "http://a.example", func(string) bool { return true })); diff != "" {
		t.Errorf("a crawl of everything (-want +got):\n%s", diff)
	}
	public := slices.Sorted(slices.Values(site.Pages()))
	polite := func(target string) bool { return !strings.HasPrefix(target, "/private/") }
	if diff := cmp.Diff(public, crawl(t, client, "https://b.example", polite)); diff != "" {
		t.Errorf("a crawl without /private/ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(public, site.Paths("b.example")); diff != "" {
		t.Errorf("Paths after it (-want +got):\n%s", diff)
	}
	_, first := get(t, client, "http://a.example/page/1")
	if _, second := get(t, client, "https://other.example/page/1"); first != second {
		t.Errorf("/page/1 differs by host:\n%s\n%s", first, second)
	}
}

func TestPages(t *testing.T) {
	_, client := start(t)
	lines := func(format string, n int) (text string) {
		for i := range n {
			text += fmt.Sprintf(format, i+1)
		}
		return text
	}
	for _, row := range []struct {
		target string
		status int
		body   string
		header http.Header // a part of the answer's
		length int64       // Content-Length, -1 where there is none
	}{
		{"/bytes/0", 200, "", nil, 0},
		{"/bytes/70000", 200, string(robotstest.Bytes(70000)), nil, 70000},
		{"/stream/3", 200, lines("line %d\n", 3), nil, -1},
		{"/sse?every=1ms", 200, lines("data: %d\n\n", 5), http.Header{"Content-Type": {"text/event-stream"}}, -1},
		{"/ndjson?n=2&every=1ms", 200, lines("{\"n\":%d}\n", 2), http.Header{"Content-Type": {"application/x-ndjson"}}, -1},
		{"/drip?every=1ms", 200, "..........", nil, 10},
		{"/status/404", 404, "status 404\n", nil, 11},
		{"/status/204", 204, "", nil, 0},
		{"/status/304", 304, "", nil, 0},
		{"/status/429?retry_after=3", 429, "status 429\n", http.Header{"Retry-After": {"3"}}, 11},
		{"/delay/1ms", 200, "after 1ms\n", nil, 10},
		{"/redirect?to=/page/1", 302, "", http.Header{"Location": {"/page/1"}}, 0},
		{"/redirect?to=http://b.example/&code=308", 308, "", http.Header{"Location": {"http://b.example/"}}, 0},
		{"/cookies", 200, "two cookies\n", http.Header{"Set-Cookie": {"first=1; Path=/", "second=2; Path=/; HttpOnly"}}, 12},
		{"/hints", 200, "hinted\n", nil, 7},
		{"/no-such-page", 404, "404 page not found\n", nil, 19},
		{"/page/x", 404, "404 page not found\n", nil, 19},
		{"/bytes/-1", 400, "the path is /bytes/N\n", nil, 21},
		{"/stream/x", 400, "the target is /stream/N?every=DURATION\n", nil, 39},
		{"/sse?n=x", 400, "the query is n=N&every=DURATION\n", nil, 32},
		{"/drip?every=x", 400, "the query is n=N&every=DURATION\n", nil, 32},
		{"/status/100", 400, "the path is /status/CODE, 200 to 999\n", nil, 37},
		{"/redirect", 400, "the target is /redirect?to=URL&code=3xx\n", nil, 40},
	} {
		for _, scheme := range []string{"http", "https"} {
			res, body := get(t, client, scheme+"://a.example"+row.target)
			length := res.ContentLength
			if row.length == 0 && body == "" {
				length = 0 // HTTP/2 says so by the end of the stream
			}
			if res.StatusCode != row.status || body != row.body || length != row.length {
				t.Errorf("Get(%s:%s) = %d, %d octets (length %d), want %d, %d octets (length %d)\ngot  %.100q\nwant %.100q",
					scheme, row.target, res.StatusCode, len(body), length, row.status, len(row.body), row.length, body, row.body)
			}
			for name, want := range row.header {
				if diff := cmp.Diff(want, res.Header[name]); diff != "" {
					t.Errorf("Get(%s:%s): %s (-want +got):\n%s", scheme, row.target, name, diff)
				}
			}
		}
	}
}

// TestHead answers HEAD at once, also where the body would be large or without end.
func TestHead(t *testing.T) {
	_, client := start(t)
	for target, want := range map[string]int64{"/bytes/1000000000000": 1e12, "/endless": -1} {
		res, err := client.Head("http://a.example" + target)
		if err != nil {
			t.Fatalf("Head(%s): %v", target, err)
		}
		res.Body.Close()
		if res.ContentLength != want {
			t.Errorf("Head(%s): Content-Length %d, want %d", target, res.ContentLength, want)
		}
	}
}

// TestFlushed reads each first piece while the next is far away.
func TestFlushed(t *testing.T) {
	_, client := start(t)
	for target, want := range map[string]string{
		"/stream/2?every=1h": "line 1\n",
		"/sse?every=1h":      "data: 1\n",
		"/ndjson?every=1h":   "{\"n\":1}\n",
		"/drip?every=1h":     ".",
	} {
		for _, scheme := range []string{"http", "https"} {
			res, err := client.Get(scheme + "://a.example" + target)
			if err != nil {
				t.Fatalf("Get(%s:%s): %v", scheme, target, err)
			}
			got := make([]byte, len(want))
			if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != want {
				t.Errorf("Get(%s:%s) begins %q, %v, want %q", scheme, target, got, err, want)
			}
			res.Body.Close()
		}
	}
}

func TestEndless(t *testing.T) {
	_, client := start(t)
	for _, scheme := range []string{"http", "https"} {
		res, err := client.Get(scheme + "://a.example/endless")
		if err != nil {
			t.Fatal(err)
		}
		want := robotstest.Bytes(1 << 20)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(res.Body, got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: the first %d octets of /endless are not those of Bytes (%v)", scheme, len(want), err)
		}
		res.Body.Close()
	}
}

func TestEcho(t *testing.T) {
	_, client := start(t)
	for _, scheme := range []string{"http", "https"} {
		req, err := http.NewRequest(http.MethodPut, scheme+"://a.example/echo?b=%2F&a=", io.MultiReader(strings.NewReader("body")))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"User-Agent": {"Bot/1"}, "X-B": {"2", "1"}, "Accept-Encoding": {"identity"}}
		req.Trailer = http.Header{"X-Sum": {"s"}}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var got robotstest.Echo
		if err := json.NewDecoder(res.Body).Decode(&got); err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		sum := sha256.Sum256([]byte("body"))
		want := robotstest.Echo{
			Proto: "HTTP/1.1", Method: "PUT", Target: "/echo?b=%2F&a=", Host: "a.example",
			Header:           []robotstest.Field{{"Accept-Encoding", "identity"}, {"User-Agent", "Bot/1"}, {"X-B", "2"}, {"X-B", "1"}},
			TransferEncoding: []string{"chunked"},
			Trailer:          []robotstest.Field{{"X-Sum", "s"}},
			BodyLength:       4,
			BodySHA256:       hex.EncodeToString(sum[:]),
		}
		if scheme == "https" {
			want.Proto, want.TLS, want.TransferEncoding = "HTTP/2.0", true, nil
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s echo (-want +got):\n%s", scheme, diff)
		}
	}
}

func TestWebSocket(t *testing.T) {
	site, _ := start(t)
	client := http1(t, site)
	client.Timeout = 0 // websocket.Dial takes the context's
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, scheme := range []string{"ws", "wss"} {
		conn, _, err := websocket.Dial(ctx, scheme+"://a.example/ws", &websocket.DialOptions{
			HTTPClient: client,
			HTTPHeader: http.Header{"Origin": {"https://elsewhere.example"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		conn.SetReadLimit(1 << 20)
		for kind, message := range map[websocket.MessageType]string{
			websocket.MessageText:   "hello",
			websocket.MessageBinary: string(robotstest.Bytes(1 << 19)),
		} {
			if err := conn.Write(ctx, kind, []byte(message)); err != nil {
				t.Fatal(err)
			}
			if gotKind, got, err := conn.Read(ctx); err != nil || gotKind != kind || string(got) != message {
				t.Errorf("%s: a %v of %d octets came back as a %v of %d octets, %v", scheme, kind, len(message), gotKind, len(got), err)
			}
		}
		if err := conn.Close(websocket.StatusNormalClosure, "done"); err != nil {
			t.Errorf("%s: closing: %v", scheme, err)
		}
	}
	for _, r := range site.Requests() {
		if r.Status != http.StatusSwitchingProtocols {
			t.Errorf("recorded %v, want status 101", r)
		}
	}
}

func TestGzip(t *testing.T) {
	site, client := start(t)
	_, unpacked := get(t, client, "http://a.example/gzip")
	if !strings.HasPrefix(unpacked, "the same line again\n") {
		t.Errorf("unpacked by the client: %.40q, want text", unpacked)
	}
	transport := site.Transport()
	transport.DisableCompression = true
	res, packed := get(t, newClient(t, transport), "http://a.example/gzip")
	if encoding := res.Header.Get("Content-Encoding"); encoding != "gzip" || !strings.HasPrefix(packed, "\x1f\x8b") {
		t.Errorf("as sent: Content-Encoding %q, body %.10q, want gzip", encoding, packed)
	}
}

func TestTrailers(t *testing.T) {
	_, client := start(t)
	for _, scheme := range []string{"http", "https"} {
		res, body := get(t, client, scheme+"://a.example/trailers")
		if got := res.Trailer.Get("Checksum"); body != "a body\n" || got != "sum of a body" {
			t.Errorf("%s: body %q, trailer Checksum: %q", scheme, body, got)
		}
	}
}

func TestHints(t *testing.T) {
	_, client := start(t)
	for _, scheme := range []string{"http", "https"} {
		var hints []string
		trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			hints = append(hints, fmt.Sprint(code, " ", header.Get("Link")))
			return nil
		}}
		req, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, scheme+"://a.example/hints", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if diff := cmp.Diff([]string{"103 </style.css>; rel=preload; as=style"}, hints); diff != "" || res.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d, hints (-want +got):\n%s", scheme, res.StatusCode, diff)
		}
	}
}

// TestBrokenBodies are answers that begin well and do not end.
func TestBrokenBodies(t *testing.T) {
	site, h2 := start(t)
	for _, row := range []struct {
		url    string
		client *http.Client
	}{
		{"http://a.example/truncate", h2},
		{"http://a.example/truncate-length", h2},
		{"https://a.example/truncate", http1(t, site)},
		{"https://a.example/truncate", h2},
		{"https://a.example/truncate-length", h2},
	} {
		res, err := row.client.Get(row.url)
		if err != nil {
			t.Errorf("Get(%s): %v, want an answer", row.url, err)
			continue
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != http.StatusOK || string(body) != "this is not the wh" || err == nil {
			t.Errorf("Get(%s) = %d %q, %v, want 200, a piece and an error", res.Request.URL, res.StatusCode, body, err)
		}
	}
}

func TestReset(t *testing.T) {
	site, h2 := start(t)
	conn := dial(t, site)
	io.WriteString(conn, "GET /reset HTTP/1.1\r\nHost: a.example\r\n\r\n")
	if n, err := conn.Read(make([]byte, 1)); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("Read = %d octets, %v, want a connection reset", n, err)
	}
	for _, client := range []*http.Client{h2, http1(t, site)} {
		if res, err := client.Post("https://a.example/reset", "", nil); err == nil {
			res.Body.Close()
			t.Errorf("https: an answer over %s, want an error", res.Proto)
		}
	}
	for _, r := range site.Requests() {
		if r.Status != 0 || r.End.IsZero() {
			t.Errorf("recorded %+v, want no status, and an end", r)
		}
	}
}

func TestGarbage(t *testing.T) {
	site, h2 := start(t)
	conn := dial(t, site)
	io.WriteString(conn, "GET /garbage HTTP/1.1\r\nHost: a.example\r\n\r\n")
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "220 mail.example ESMTP ready\r\n" {
		t.Errorf("/garbage = %q, %v", line, err)
	}
	if res, _ := get(t, h2, "https://a.example/garbage"); res.StatusCode != http.StatusHTTPVersionNotSupported {
		t.Errorf("/garbage over HTTP/2 = %d, want 505", res.StatusCode)
	}
}

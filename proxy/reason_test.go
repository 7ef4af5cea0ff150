package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/ratelimit"
	"github.com/robotsproxy/robotsproxy/robots"
)

// reasonRobots is a robots.txt whose rules refuse, allow and delay.
const reasonRobots = "User-agent: *\n\nDisallow: /private/\n\nUser-agent: Slow\nCrawl-delay: 100\n"

// speak sends requests on one connection and checks the status line of each answer.
func speak(t *testing.T, conn net.Conn, requests, wants []string, pipelined bool) {
	t.Helper()
	in := bufio.NewReader(conn)
	if pipelined {
		if _, err := io.WriteString(conn, strings.Join(requests, "")); err != nil {
			t.Fatal(err)
		}
	}
	for i, request := range requests {
		if !pipelined {
			if _, err := io.WriteString(conn, request); err != nil {
				t.Fatal(err)
			}
		}
		method, _, _ := strings.Cut(request, " ")
		resp, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		if resp.Status != wants[i] {
			t.Errorf("request %d (%q) is answered %q, want %q", i, request, resp.Status, wants[i])
		}
	}
}

// The status line of a refusal says why, and that of the next answer on the connection is the standard one.
func TestReasonPhrase(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		for _, pipelined := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, pipelined %t", scheme, pipelined), func(t *testing.T) {
				r := newRig(t, func(o *Options) { o.Snapshots, o.MaxWait = fixed(reasonRobots), time.Second })
				target := func(path string) string { return r.url("http", path) }
				conn := r.raw("")
				if scheme == "https" {
					target = func(path string) string { return path }
					conn = r.rawTLS()
				}
				host := strings.TrimPrefix(strings.TrimSuffix(r.url(scheme, ""), "/"), scheme+"://")
				request := func(method, path, rest string) string {
					if rest == "" {
						rest = "\r\n"
					}
					return method + " " + target(path) + " HTTP/1.1\r\nHost: " + host + "\r\n" + rest
				}
				requests := []string{
					request("GET", "/private/1", ""),
					request("GET", "/page/1", ""),
					request("HEAD", "/private/1", ""),
					request("HEAD", "/page/1", ""),
					request("POST", "/private/1", "Content-Length: 5\r\n\r\nhello"),
					request("POST", "/echo", "Content-Length: 5\r\n\r\nhello"),
					request("GET", "/status/404", ""),
					request("GET", "/page/1", "User-Agent: Slow/1.0\r\n\r\n"),
					request("GET", "/private/2", ""),
				}
				speak(t, conn, requests, []string{
					"403 Disallowed by robots.txt line 3", "200 OK",
					"403 Disallowed by robots.txt line 3", "200 OK",
					"403 Disallowed by robots.txt line 3", "200 OK",
					"404 Not Found",
					"429 Wait 100 s for the Crawl-delay of a.example",
					"403 Disallowed by robots.txt line 3",
				}, pipelined)
			})
		}
	}
}

// rawTLS returns a connection of HTTP/1.1 inside an intercepted tunnel.
func (r *rig) rawTLS() net.Conn {
	r.t.Helper()
	conn := r.raw(fmt.Sprintf("CONNECT a.example:%d HTTP/1.1\r\nHost: a.example\r\n\r\n", r.site.TLSPort()))
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		r.t.Fatalf("CONNECT: %v, %v", resp, err)
	}
	return tls.Client(conn, &tls.Config{RootCAs: r.ca, ServerName: "a.example", NextProtos: []string{"http/1.1"}})
}

// A request may ask for 100 Continue, send its body in chunks, or break off; the phrases stay with their answers.
func TestReasonPhraseOfUploads(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots = fixed(reasonRobots) })
	const chunked = "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
	post := func(path, rest string) string {
		return "POST " + r.url("http", path) + " HTTP/1.1\r\nHost: a.example\r\n" + rest
	}
	speak(t, r.raw(""), []string{
		post("/private/1", chunked), post("/echo", chunked), post("/private/1", "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"),
	}, []string{"403 Disallowed by robots.txt line 3", "200 OK", "403 Disallowed by robots.txt line 3"}, false)
	speak(t, r.raw(""), []string{"GET " + r.url("http", "/private/1") + " HTTP/1.0\r\n\r\n"}, []string{"403 Disallowed by robots.txt line 3"}, false)
	speak(t, r.raw(""), []string{"GET /\r\n\r\n"}, []string{
		"400 bad-request: This is not a well-formed HTTP/1.1 request (RFC 9112): the first line is not a method, a target and a version with one space between them.",
	}, false)
}

// Each reason has a phrase that is short, ASCII and without control characters.
func TestEveryReasonHasItsPhrase(t *testing.T) {
	for reason := range classes {
		for _, method := range []string{"GET", "HEAD", "CONNECT", ""} {
			ref := &refusal{Reason: reason, Detail: strings.Repeat("é\r\nX: y\x1b[31m ", 100)}
			ref.complete(0)
			checkPhrase(t, ref.phrase(method), method)
			ref.Phrase = ref.Detail
			checkPhrase(t, ref.phrase(method), method)
		}
	}
	auth := authRefusal(errNoCredentials)
	auth.complete(0)
	if got := auth.phrase("GET"); got != "Proxy Authentication Required" {
		t.Errorf("the phrase of 407 is %q", got)
	}
}

func checkPhrase(t *testing.T, phrase, method string) {
	t.Helper()
	limit := maxPhrase
	if method == http.MethodConnect || method == "" {
		limit = maxDetailPhrase
	}
	unsafe := func(c rune) bool { return c < ' ' || c > '~' }
	if phrase == "" || len(phrase) > limit || strings.ContainsFunc(phrase, unsafe) {
		t.Errorf("the phrase is %q, %d bytes", phrase, len(phrase))
	}
}

// The causes that name a host or a line.
func TestPhrases(t *testing.T) {
	long := strings.Repeat("a.", 120) + "example"
	for _, tt := range []struct{ name, host, want string }{
		{"unreachable", "a.example", "503 robots.txt unreachable"},
		{"a long host", long, "429 Wait 100 s for the Crawl-delay of " + long[:maxPhrase-34]},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) {
				delayed := fixed("User-agent: *\nCrawl-delay: 100\n")
				o.MaxWait, o.Snapshots = time.Second, snapshots(func(ctx context.Context, to origin.Origin) (*robots.Snapshot, error) {
					if to.Host() == "a.example" {
						return unreachable(ctx, to)
					}
					return delayed(ctx, to)
				})
			})
			grant, err := r.limiter.Acquire(t.Context(), ratelimit.Request{Key: tt.host, Client: "x"})
			if err != nil {
				t.Fatal(err)
			}
			grant.Release(ratelimit.Outcome{Ended: time.Now()})
			request := "GET http://" + tt.host + "/x HTTP/1.1\r\nHost: " + tt.host + "\r\n\r\n"
			speak(t, r.raw(""), []string{request}, []string{tt.want}, false)
		})
	}
}

func TestPhraseOfOverMax(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots = fixed("User-agent: *\nCrawl-delay: 100\n") })
	r.change(func(o *Options) {
		o.Policy = r.newPolicy(policy.Options{MaxCrawlDelay: time.Second, RefuseOverMax: true})
	})
	speak(t, r.raw("GET "+r.url("http", "/x")+" HTTP/1.1\r\nHost: a\r\n\r\n"), []string{" "},
		[]string{"403 The Crawl-delay of a.example is too long"}, false)
}

package proxy

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
	"github.com/robotsproxy/robotsproxy/policy"
)

const trickyRules = "User-agent: *\nDisallow: /private/\nDisallow: /caf%C3%A9\nDisallow: /~me\nDisallow: /q?x\nDisallow: /*.pdf$\nDisallow: /$\n"

// targetTricks are ways to write a target. Where sent is empty the origin sees nothing of it; else it sees exactly
// that.
var targetTricks = []struct{ name, target, sent string }{
	{"as it is", "/private/x", ""},
	{"not below it", "/private", "/private"},
	{"another case is another path", "/PRIVATE/x", "/PRIVATE/x"},
	{"an encoded letter", "/%70rivate/x", ""},
	{"every letter encoded", "/%70%72%69%76%61%74%65/x", ""},
	{"an encoded letter of another case", "/%50rivate/x", "/%50rivate/x"},
	{"an encoded slash is none", "/private%2Fx", "/private%2Fx"},
	{"an encoded slash beside a slash", "/%2Fprivate/x", "/%2Fprivate/x"},
	{"an encoded slash after dots", "/pub/..%2Fprivate/x", ""},
	{"an encoded slash elsewhere than the dots", "/pub/../private%2Fx", "/pub/../private%2Fx"},
	{"encoded slashes and dots", "/x%2f..%2Fprivate/x", ""},
	{"encoded slashes that lead nowhere", "/page%2F1", "/page%2F1"},
	{"encoded slashes of a query", "/page/1?y=%2F..%2Fprivate/", "/page/1?y=%2F..%2Fprivate/"},
	{"encoded twice", "/%2570rivate/x", "/%2570rivate/x"},
	{"dots", "/x/../private/x", ""},
	{"a single dot", "/./private/x", ""},
	{"dots out of it", "/private/../page/1", ""},
	{"encoded dots", "/x/%2e%2E/private/x", ""},
	{"half encoded dots", "/x/.%2e/private/x", ""},
	{"dots above the root", "/../../private/x", ""},
	{"dots at the end", "/private/x/..", ""},
	{"doubled slash", "//private/x", ""},
	{"doubled slashes and dots", "/x//../private//x", ""},
	{"doubled slash at the end", "/private//x", ""},
	{"not text", "/private/%00%ff", ""},
	{"backslashes beside dots", `/x\..\private/x`, ""},
	{"a backslash is no slash", `/private\x`, "/private%5Cx"},
	{"an encoded backslash too", "/x%5c..%5Cprivate/x", ""},
	{"a backslash that leads nowhere", `/x\y`, "/x%5Cy"},
	{"octets beyond ASCII", "/café", ""},
	{"encoded in lower case", "/caf%c3%a9", ""},
	{"decomposed it is another path", "/cafe%CC%81", "/cafe%CC%81"},
	{"encoded tilde", "/%7Eme", ""},
	{"query", "/q?x=1", ""},
	{"encoded query mark is none", "/q%3Fx", "/q%3Fx"},
	{"anchored", "/a.pdf", ""},
	{"anchored, and a query behind", "/a.pdf?x", "/a.pdf?x"},
	{"empty query", "/page/1?", "/page/1?"},
	{"the root", "/", ""},
	{"fragment", "/page/1#/private", ""},
	{"encoded fragment", "/page/1%23", "/page/1%23"},
	{"broken encoding", "/%zz/../private/x", ""},
	{"no slash", "private/x", ""},
	{"parameters of a segment", "/page;x/1", "/page;x/1"},
	{"parameters of dots", "/pub/..;/private/x", ""},
	{"parameters of dots with a value", "/pub/..;x=y/private/x", ""},
	{"parameters of encoded dots", "/pub/%2e%2e;/private/x", ""},
	{"a URL in the path", "/page/http://b.example/private/", "/page/http://b.example/private/"},
}

func TestTargetTricks(t *testing.T) {
	for _, way := range connections {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, nil)
			r.site.SetRobots("", robotstest.Robots{Body: trickyRules})
			for _, row := range targetTricks {
				t.Run(row.name, func(t *testing.T) {
					r.site.Reset()
					conn, target, host := way.open(r)
					defer conn.Close()
					if !strings.HasPrefix(row.target, "/") && target != "" {
						t.Skip("an absolute target cannot lack its slash")
					}
					fmt.Fprintf(conn, "GET %s%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", target, row.target, host)
					all, err := answers(conn)
					if err != nil || len(all) != 1 {
						t.Fatalf("%s: %v, %v", row.target, all, err)
					}
					r.checkSent(row.target, row.sent)
					if row.sent == "" && (all[0].StatusCode < 400 || all[0].StatusCode > 403) {
						t.Errorf("%s: %s", row.target, all[0].Status)
					}
				})
			}
		})
	}
}

// checkSent fails unless the origin saw nothing but its robots.txt and, if it is not empty, the target sent.
func (r *rig) checkSent(what, sent string) {
	r.t.Helper()
	var want []string
	if sent != "" {
		want = []string{sent}
	}
	var got []string
	for _, req := range r.site.Requests() {
		if req.Target != "/robots.txt" {
			got = append(got, req.Target)
		}
	}
	if !slices.Equal(got, want) {
		r.t.Errorf("%s: the origin saw %q, want %q", what, got, want)
	}
}

// Every spelling of an origin has that origin's rules, and the origin sees its own name.
func TestAuthorityTricks(t *testing.T) {
	r := newRig(t, nil)
	r.site.SetRobots("a.example", robotstest.Robots{Body: disallow})
	r.site.SetRobots("xn--bcher-kva.example", robotstest.Robots{Body: disallow})
	port := r.site.Port()
	for _, row := range []struct{ name, authority, host string }{
		{"as it is", "a.example:%d", "a.example"},
		{"upper case", "A.EXAMPLE:%d", "a.example"},
		{"trailing dot", "a.example.:%d", "a.example"},
		{"zeros in the port", "a.example:00%d", "a.example"},
		{"userinfo", "user:hunter2@a.example:%d", "a.example"},
		{"userinfo that looks like a host", "b.example:80@a.example:%d", "a.example"},
		{"userinfo with an encoded at", "b.example%%40@a.example:%d", "a.example"},
		{"IDN", "bücher.example:%d", "xn--bcher-kva.example"},
		{"IDN in upper case", "BÜCHER.example.:%d", "xn--bcher-kva.example"},
		{"IDN encoded", "b%%C3%%BCcher.example:%d", "xn--bcher-kva.example"},
		{"punycode", "XN--bcher-KVA.example:%d", "xn--bcher-kva.example"},
		{"full-width letters", "ａ.ｅｘａｍｐｌｅ:%d", "a.example"},
		{"ideographic full stop", "a。example:%d", "a.example"},
	} {
		t.Run(row.name, func(t *testing.T) {
			authority := fmt.Sprintf(row.authority, port)
			for path, status := range map[string]int{"/private/x": 403, "/page/1": 200} {
				r.site.Reset()
				conn := r.raw("GET http://" + authority + path + " HTTP/1.1\r\nHost: b.example\r\nConnection: close\r\n\r\n")
				all, err := answers(conn)
				if err != nil || len(all) != 1 || all[0].StatusCode != status {
					t.Fatalf("http://%s%s: %v, %v; want %d", authority, path, all, err, status)
				}
				for _, req := range r.site.Requests() {
					if req.Host != fmt.Sprintf("%s:%d", row.host, port) || req.Header.Get("Authorization") != "" {
						t.Errorf("http://%s%s: the origin saw %v %v", authority, path, req, req.Header)
					}
				}
				if slices.Contains(r.site.Paths(row.host), "/private/x") {
					t.Errorf("http://%s%s: the origin saw it", authority, path)
				}
			}
		})
	}
	for _, rec := range r.records.all() {
		if strings.Contains(fmt.Sprintf("%+v", rec), "hunter2") {
			t.Errorf("a password is in the record %+v", rec)
		}
	}
}

// Addresses are judged as what they are, and names that only some resolvers understand are refused.
func TestAddressTricks(t *testing.T) {
	r := newRig(t, nil)
	r.site.SetRobots("", robotstest.Robots{Body: disallow})
	for authority, status := range map[string]int{
		"127.0.0.1": 403, "[::ffff:127.0.0.1]": 403, "[::1]": 403, "[0:0:0:0:0:ffff:7f00:1]": 403, "[::ffff:7f00:1]": 403,
		"127.1": 400, "0x7f000001": 400, "0x7f.0.0.1": 400, "0177.0.0.1": 400, "2130706433": 400, "127.0.0.1.": 403,
		"[::1%25lo]": 400, "[::1": 400, "::1": 400, "[127.0.0.1]": 400, "%31%32%37.0.0.1": 400, "a.example:0": 400, "a.example:65536": 400, "a.example:8_0": 400, "": 400,
	} {
		for _, path := range []string{"/private/x", "//private/./x"} {
			r.site.Reset()
			if !strings.Contains(strings.TrimSuffix(authority, "]"), "example:") {
				authority = strings.TrimSuffix(authority, fmt.Sprintf(":%d", r.site.Port())) + fmt.Sprintf(":%d", r.site.Port())
			}
			all, err := answers(r.raw("GET http://" + authority + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
			if err != nil || len(all) != 1 || all[0].StatusCode != status {
				t.Errorf("http://%s%s: %v, %v; want %d", authority, path, all, err, status)
			}
			r.checkSent(authority+path, "")
		}
	}
}

// The default port is the same origin whether or not it is written.
func TestDefaultPort(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots = fixed(disallow) })
	for i, url := range []string{"http://a.example/private/x", "http://a.example:80/private/x", "http://a.example:/private/x", "http://a.example:0080/private/x"} {
		all, err := answers(r.raw("GET " + url + " HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"))
		if err != nil || len(all) != 1 || all[0].StatusCode != 403 {
			t.Fatalf("%s: %v, %v", url, all, err)
		}
		if rec := r.last(i + 1); rec.Host != "a.example" || rec.Port != 80 || rec.RuleLine != 2 {
			t.Errorf("%s: record %+v", url, rec)
		}
	}
}

// No method has rules of its own, and HTTP/1.0 none either.
func TestEveryMethodIsJudged(t *testing.T) {
	for _, way := range connections {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, nil)
			r.site.SetRobots("a.example", robotstest.Robots{Body: disallow})
			for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "REPORT", "PURGE", "get", "X!"} {
				for _, version := range []string{"1.0", "1.1"} {
					for path, status := range map[string]int{"/private/x": 403, "/status/207": 207} {
						r.site.Reset()
						conn, target, host := way.open(r)
						fmt.Fprintf(conn, "%s %s%s HTTP/%s\r\nHost: %s\r\nConnection: close\r\n\r\n", method, target, path, version, host)
						head, _, _ := strings.Cut(readAll(t, conn), "\r\n")
						if !strings.Contains(head, fmt.Sprintf(" %d", status)) {
							t.Errorf("%s %s HTTP/%s: %q, want %d", method, path, version, head, status)
						}
						sent := map[int]string{207: path}[status]
						if r.checkSent(method+" "+path, sent); sent != "" {
							all := r.site.Requests()
							if got := all[len(all)-1].Method; got != method {
								t.Errorf("%s came to the origin as %s", method, got)
							}
						}
					}
				}
			}
		})
	}
}

func readAll(t *testing.T, r io.Reader) string {
	t.Helper()
	data, err := io.ReadAll(r)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) { // TLS that ends without a word
		t.Errorf("reading: %v", err)
	}
	return string(data)
}

// A crawler that follows a redirect is judged anew for each step.
func TestRedirectsAreJudgedAnew(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, nil)
			r.site.SetRobots("a.example", robotstest.Robots{Body: disallow})
			r.site.SetRobots("b.example", robotstest.Robots{Body: "User-agent: *\nDisallow: /page/\n"})
			c := r.client(way.http1)
			c.CheckRedirect = nil
			other := strings.Replace(r.url(way.scheme, "/page/2"), "a.example", "b.example", 1)
			for to, want := range map[string]int{"/private/x": 403, "/page/1": 200, other: 403} {
				resp, err := c.Get(r.url(way.scheme, "/redirect?to="+to))
				if err != nil {
					t.Fatal(err)
				}
				if resp.Body.Close(); resp.StatusCode != want {
					t.Errorf("a redirect to %s: %s, want %d", to, resp.Status, want)
				}
			}
			if slices.Contains(r.site.Paths("a.example"), "/private/x") || slices.Contains(r.site.Paths("b.example"), "/page/2") {
				t.Errorf("the origins saw %v", r.site.Requests())
			}
		})
	}
}

// What a tunnel was opened to holds for every request in it, pipelined ones too.
func TestLaterRequestsOfATunnel(t *testing.T) {
	for _, way := range connections[1:] {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, nil)
			conn, _, host := way.open(r)
			other := strings.Replace(host, "a.", "b.", 1)
			fmt.Fprintf(conn, "GET /page/1 HTTP/1.1\r\nHost: %s\r\n\r\nGET /page/2 HTTP/1.1\r\nHost: %s\r\n\r\nGET /page/3 HTTP/1.1\r\nHost: %s\r\n\r\n", host, other, host)
			all, err := answers(conn)
			if err != nil || len(all) != 2 || all[0].StatusCode != 200 || all[1].StatusCode != 421 || !all[1].Close {
				t.Fatalf("answers: %v, %v", all, err)
			}
			if got := fmt.Sprint(r.site.Paths("a.example"), r.site.Paths("b.example")); got != "[/page/1 /robots.txt] []" {
				t.Errorf("the origins saw %s", got)
			}
		})
	}
}

// Inside a tunnel a Host beside an absolute target must agree too, though net/http passes over it.
func TestHostBesideAnAbsoluteTarget(t *testing.T) {
	for _, way := range connections[1:] {
		for _, row := range []struct {
			host   string
			status int
		}{
			{"HOST", 200}, {" \tA.EXAMPLE.:PORT ", 200}, {"b.example:PORT", 421}, {"a.example:1", 421}, {"HOST/private?x", 400}, {"user@HOST", 400}, {"", 400},
		} {
			t.Run(way.name+"/"+row.host, func(t *testing.T) {
				r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
				conn, _, host := way.open(r)
				scheme, want := "http", []string{"/page/1"}
				if way.name == "tunnel with TLS" {
					scheme = "https"
				}
				fmt.Fprintf(conn, "GET %s://%s/page/1 HTTP/1.1\r\nHost:%s\r\n\r\n", scheme, host, host)
				named := strings.NewReplacer("HOST", host, "PORT", host[len("a.example:"):]).Replace(row.host)
				for _, piece := range strings.SplitAfter(fmt.Sprintf("GET %s://%s/page/2 HTTP/1.1\r\nHost:%s\r\nConnection: close\r\n\r\n", scheme, host, named), "a") {
					io.WriteString(conn, piece)
				}
				all, err := answers(conn)
				if err != nil || len(all) != 2 || all[0].StatusCode != 200 || all[1].StatusCode != row.status || !all[1].Close {
					t.Fatalf("answers: %v, %v", all, err)
				}
				if row.status == 200 {
					want = append(want, "/page/2")
				} else if rec := r.last(2); rec.Status != row.status || rec.Reason != policy.Reason(all[1].Header.Get("Robotsproxy-Reason")) {
					t.Errorf("record: %+v", rec)
				}
				if got := r.site.Paths("a.example"); !slices.Equal(got, want) {
					t.Errorf("the origin saw %s, want %s", got, want)
				}
			})
		}
	}
}

// An upgrade to anything but WebSocket is no upgrade: the request is judged and sent without it.
func TestOtherUpgrades(t *testing.T) {
	for _, way := range connections {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots = fixed(disallow) })
			for _, upgrade := range []string{"h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__", "TLS/1.0", "websocket/13, irc"} {
				for path, status := range map[string]int{"/private/x": 403, "/page/1": 200} {
					r.site.Reset()
					conn, target, host := way.open(r)
					fmt.Fprintf(conn, "GET %s%s HTTP/1.1\r\nHost: %s\r\nConnection: close, Upgrade, HTTP2-Settings\r\nUpgrade: %s\r\n\r\n", target, path, host, upgrade)
					all, err := answers(conn)
					if err != nil || len(all) != 1 || all[0].StatusCode != status {
						t.Fatalf("Upgrade: %s, %s: %v, %v", upgrade, path, all, err)
					}
					for _, req := range r.site.Requests() {
						if req.Target != "/page/1" || req.Header.Get("Upgrade")+req.Header.Get("Http2-Settings")+req.Header.Get("Connection") != "" {
							t.Errorf("Upgrade: %s: the origin saw %v %v", upgrade, req, req.Header)
						}
					}
				}
			}
		})
	}
}

// HTTP/2 has its own ways to name things twice. HEADERS frames are written by hand, since a client would set them
// right.
func TestHTTP2Tricks(t *testing.T) {
	r := newRig(t, nil)
	r.site.SetRobots("", robotstest.Robots{Body: trickyRules})
	authority := fmt.Sprintf("a.example:%d", r.site.TLSPort())
	for _, row := range []struct {
		name string
		head [][2]string // without the pseudo-fields that are as they should be
		want string      // status, or "reset"
		sent string
	}{
		{"as it should be", nil, "200", "/page/1"},
		{"authority of another host", [][2]string{{":authority", "b.example"}}, "421", ""},
		{"authority of another port", [][2]string{{":authority", "a.example:1"}}, "421", ""},
		{"authority in other letters", [][2]string{{":authority", strings.ToUpper(authority)}}, "200", "/page/1"},
		{"authority with userinfo", [][2]string{{":authority", "user@" + authority}}, "reset", ""},
		{"authority with a path", [][2]string{{":authority", authority + "/private/x?"}}, "400", ""},
		{"Host and authority differ", [][2]string{{"host", "b.example"}}, "421", ""},
		{"two Hosts", [][2]string{{"host", authority}, {"host", "b.example"}}, "421", ""},
		{"absolute path", [][2]string{{":path", "https://b.example/page/1"}}, "421", ""},
		{"disallowed", [][2]string{{":path", "/private/x"}}, "403", ""},
		{"dots", [][2]string{{":path", "/x/%2e%2e/private/x"}}, "403", ""},
		{"slashes", [][2]string{{":path", "//private/x"}}, "403", ""},
		{"fragment", [][2]string{{":path", "/page/1#/private/x"}}, "400", ""},
		{"asterisk", [][2]string{{":method", "OPTIONS"}, {":path", "*"}}, "400", ""},
		{"CONNECT", [][2]string{{":method", "CONNECT"}, {":path", ""}, {":scheme", ""}}, "400", ""},
		{"extended CONNECT", [][2]string{{":method", "CONNECT"}, {":protocol", "websocket"}}, "reset", ""},
		{"Transfer-Encoding", [][2]string{{"transfer-encoding", "chunked"}}, "400", ""},
		{"Connection", [][2]string{{"connection", "close"}}, "400", ""},
		{"upper case", [][2]string{{"X-Upper", "1"}}, "reset", ""},
		{"CR and LF in a value", [][2]string{{"x", "y\r\nHost: b.example"}}, "reset", ""},
		{"space in the method", [][2]string{{":method", "GET /private/x"}}, "400", ""},
		{"length without a body", [][2]string{{"content-length", "5"}}, "400", ""},
		{"two lengths", [][2]string{{"content-length", "0"}, {"content-length", "5"}}, "400", ""},
		{"signed length", [][2]string{{"content-length", "+0"}}, "400", ""},
		{"length of no body", [][2]string{{"content-length", "0"}}, "200", "/page/1"},
		{"space in the path", [][2]string{{":path", "/page/1 HTTP/1.1"}}, "", "/page/1%20HTTP/1.1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r.site.Reset()
			got := r.roundTrip2(authority, row.head)
			if row.want != "" && got != row.want {
				t.Errorf("answer %q, want %q", got, row.want)
			}
			r.checkSent(row.name, row.sent)
		})
	}
}

// roundTrip2 sends one HEADERS frame through a tunnel and returns the status of the answer, or "reset".
func (r *rig) roundTrip2(authority string, change [][2]string) string {
	conn := tls.Client(r.tunnelTo(authority), &tls.Config{ServerName: "a.example", RootCAs: r.ca, NextProtos: []string{"h2"}})
	defer conn.Close()
	io.WriteString(conn, http2.ClientPreface)
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	framer.WriteSettings()
	framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headerBlock(authority, change), EndStream: true, EndHeaders: true})
	for {
		frame, err := framer.ReadFrame()
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			return f.PseudoValue("status")
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return "reset"
		}
		if err != nil {
			return "reset"
		}
	}
}

// headerBlock writes a request for /page/1 with some fields changed; an empty value leaves a pseudo-field out.
func headerBlock(authority string, change [][2]string) []byte {
	fields := [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", authority}, {":path", "/page/1"}}
	for _, c := range change {
		if i := slices.IndexFunc(fields, func(f [2]string) bool { return f[0] == c[0] && c[0][0] == ':' }); i >= 0 {
			fields[i][1] = c[1]
		} else if c[0][0] == ':' {
			fields = slices.Insert(fields, 0, c)
		} else {
			fields = append(fields, c)
		}
	}
	var b bytes.Buffer
	enc := hpack.NewEncoder(&b)
	for _, f := range fields {
		if f[1] != "" {
			enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
	}
	return b.Bytes()
}

// Clients who ask the proxy itself, or ask it for itself, do not get past it.
func TestNoWayThroughTheFrontDoor(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
	for request, status := range map[string]int{
		"GET /page/1 HTTP/1.1\r\nHost: HOST\r\n\r\n":                           404, // a visit
		"POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: 5\r\n\r\n":           404, // one whose body does not come
		"GET http://HOST/page/1 HTTP/1.1\r\nHost: HOST\r\nVia: 1.1 US\r\n\r\n": 508,
		"GET http://PROXY/ HTTP/1.1\r\nHost: PROXY\r\n\r\n":                    403,
		"CONNECT HOST HTTP/1.1\r\nHost: HOST\r\nContent-Length: 1\r\n\r\n":     400,
		"CONNECT user@HOST HTTP/1.1\r\nHost: HOST\r\n\r\n":                     400,
		"CONNECT http://HOST/ HTTP/1.1\r\nHost: HOST\r\n\r\n":                  400,
		"CONNECT HOST#x HTTP/1.1\r\nHost: HOST\r\n\r\n":                        400,
		"CONNECT * HTTP/1.1\r\nHost: HOST\r\n\r\n":                             400,
		"CONNECT /x HTTP/1.1\r\nHost: HOST\r\n\r\n":                            400,
		"CONNECT 0x7f.1:443 HTTP/1.1\r\nHost: HOST\r\n\r\n":                    400,
	} {
		names := strings.NewReplacer("HOST", fmt.Sprintf("a.example:%d", r.site.Port()), "PROXY", r.addr, "US", r.server.settings.Load().Pseudonym)
		resp, err := answers(r.raw(names.Replace(strings.Replace(request, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1))))
		if err != nil || len(resp) != 1 || resp[0].StatusCode != status {
			t.Errorf("%q: %v, %v; want %d", request, resp, err, status)
		}
	}
	if got := r.site.Requests(); len(got) > 0 {
		t.Errorf("the origin saw %v", got)
	}
	for _, rec := range r.records.all() {
		if rec.Decision == policy.Allow {
			t.Errorf("allowed: %+v", rec)
		}
	}
}

// A target of the proxy itself whose path a router would clean is refused: a redirect of "//host/x" would look as if it
// were another request's.
func TestPathsOfTheProxyItself(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots, o.Onboarding = fixed(""), ownPages() })
	rows := map[string]int{
		"//a.example/private": 400, "//": 400, "///": 400, "/./": 400, "/x/../ca.pem": 400, "/x//y": 400, "//ca.pem": 400, "/..": 400, "//a.example/?x": 400, "/x/.": 400,
		"/": 200, "/?x": 200, "/ca.pem": 200, "/proxy.pac": 200, "/ca.pem/": 404, "/page//": 400, "/%2Fa.example/x": 404, "/%2e%2e/x": 404, "/x?u=//a/../b": 404,
	}
	secure := func() net.Conn {
		c := tls.Client(r.tunnelTo("robots.proxy:443"), &tls.Config{ServerName: "robots.proxy", RootCAs: r.ca})
		return c
	}
	refused := 0
	for name, way := range map[string]struct {
		open         func() net.Conn
		before, host string
	}{
		"front":    {func() net.Conn { return r.raw("") }, "", "proxy.example"},
		"absolute": {func() net.Conn { return r.raw("") }, "http://robots.proxy", "robots.proxy"},
		"tunnel":   {func() net.Conn { return r.tunnelTo("robots.proxy:80") }, "", "robots.proxy"},
		"TLS":      {secure, "", "robots.proxy"},
	} {
		for target, status := range rows {
			conn := way.open()
			fmt.Fprintf(conn, "GET %s%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", way.before, target, way.host)
			all, err := answers(conn)
			if err != nil || len(all) != 1 || all[0].StatusCode != status || all[0].Header.Get("Location") != "" {
				t.Errorf("%s: %s: %v, %v; want %d", name, target, all, err, status)
				continue
			}
			if status == 400 {
				refused++
				if reason := all[0].Header.Get("Robotsproxy-Reason"); reason != "bad-request" {
					t.Errorf("%s: %s: reason %q", name, target, reason)
				}
			}
		}
	}
	if got := r.site.Requests(); len(got) > 0 {
		t.Errorf("the origin saw %v", got)
	}
	r.last(refused)
	if got := len(r.records.all()); got != refused {
		t.Errorf("%d records of %d refusals", got, refused)
	}
}

// ownPages stands for the pages of the proxy itself. "/" shows the local address and the URL of the request.
func ownPages() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "at %v for %s", r.Context().Value(http.LocalAddrContextKey), r.URL)
	})
	page := func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "page ", r.URL.Path) }
	mux.HandleFunc("/ca.pem", page)
	mux.HandleFunc("/proxy.pac", page)
	return mux
}

// TestOwnPages checks that the pages of the proxy itself are reached through the proxy by http and https, over any
// version of HTTP, whatever other tunnels may do, and that unknown paths of robots.proxy are not sent to another
// server.
func TestOwnPages(t *testing.T) {
	for _, how := range []policy.Interception{policy.Intercept, policy.Tunnel, policy.NoTunnel} {
		r := &rig{t: t}
		r = newRig(t, func(o *Options) {
			o.Policy = r.newPolicy(policy.Options{Interception: how})
			o.Onboarding = ownPages()
		})
		for _, http1 := range []bool{true, false} {
			for _, url := range []string{"http://robots.proxy/", "https://robots.proxy/", "https://robots.proxy/ca.pem"} {
				resp, body := r.get(r.client(http1), url)
				if got := string(body); resp.StatusCode != 200 || got != "page /ca.pem" && got != "at "+r.addr+" for http://robots.proxy/" {
					t.Errorf("%v: GET %s: %s\n%s", how, url, resp.Status, body)
				}
			}
			if resp, body := r.get(r.client(http1), "https://robots.proxy/page/1"); resp.StatusCode != 404 {
				t.Errorf("%v: a page that is not there: %s\n%s", how, resp.Status, body)
			}
			if resp, body := r.get(r.client(http1), "http://robots.proxy:8080/"); resp.StatusCode == 200 {
				t.Errorf("%v: another port: %s\n%s", how, resp.Status, body)
			}
		}
	}
}

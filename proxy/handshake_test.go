package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/policy"
)

// The example of RFC 6455 section 1.3.
const (
	sampleKey    = "dGhlIHNhbXBsZSBub25jZQ=="
	sampleAccept = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="

	asksUpgrade    = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
	asksVersion    = "Sec-WebSocket-Version: 13\r\n"
	asksKey        = "Sec-WebSocket-Key: " + sampleKey + "\r\n"
	asksWell       = asksUpgrade + asksVersion + asksKey
	grantsUpgrade  = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
	grantsWell     = grantsUpgrade + "Sec-WebSocket-Accept: " + sampleAccept + "\r\n"
	grantsNonsense = grantsUpgrade + "Sec-WebSocket-Accept: " + sampleKey + "\r\n"
)

// A request for a WebSocket with another handshake than that of RFC 6455 section 4.1 is refused, and the origin gets no
// request.
func TestHandshakeOfTheClient(t *testing.T) {
	rows := map[string]struct{ method, header string }{
		"no key":                         {"GET", asksUpgrade + asksVersion},
		"an empty key":                   {"GET", asksUpgrade + asksVersion + "Sec-WebSocket-Key:\r\n"},
		"a key that is no base64":        {"GET", asksUpgrade + asksVersion + "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=!\r\n"},
		"a key of 15 bytes":              {"GET", asksUpgrade + asksVersion + "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25j\r\n"},
		"a key of 17 bytes":              {"GET", asksUpgrade + asksVersion + "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZWE=\r\n"},
		"two keys":                       {"GET", asksWell + asksKey},
		"two keys in one field":          {"GET", asksUpgrade + asksVersion + "Sec-WebSocket-Key: " + sampleKey + ", " + sampleKey + "\r\n"},
		"a key that Connection removes":  {"GET", asksWell + "Connection: Sec-WebSocket-Key\r\n"},
		"no version":                     {"GET", asksUpgrade + asksKey},
		"version 8":                      {"GET", asksUpgrade + asksKey + "Sec-WebSocket-Version: 8\r\n"},
		"two versions":                   {"GET", asksWell + "Sec-WebSocket-Version: 8\r\n"},
		"two versions in one field":      {"GET", asksUpgrade + asksKey + "Sec-WebSocket-Version: 13, 8\r\n"},
		"POST":                           {"POST", asksWell + "Content-Length: 0\r\n"},
		"HEAD":                           {"HEAD", asksWell},
		"a body":                         {"GET", asksWell + "Content-Length: 5\r\n"},
		"a body in chunks":               {"GET", asksWell + "Transfer-Encoding: chunked\r\n"},
		"a subprotocol that is no token": {"GET", asksWell + "Sec-WebSocket-Protocol: chat room\r\n"},
		"a subprotocol twice":            {"GET", asksWell + "Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Protocol: other, chat\r\n"},
		"an extension that is no token":  {"GET", asksWell + "Sec-WebSocket-Extensions: \"deflate\"\r\n"},
	}
	for _, way := range connections {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots = fixed(disallow) })
			for name, row := range rows {
				conn, target, host := way.open(r)
				fmt.Fprintf(conn, "%s %s/ws HTTP/1.1\r\nHost: %s\r\n%s\r\n", row.method, target, host, row.header)
				resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: row.method})
				if err != nil || resp.StatusCode != 400 || resp.Header.Get("Robotsproxy-Reason") != "bad-request" {
					t.Errorf("%s: answer %v, %v; want 400 bad-request", name, resp, err)
				}
				conn.Close()
			}
			if got := r.site.Requests(); len(got) != 0 {
				t.Errorf("the origin saw %v", got)
			}
			r.last(len(rows))
			for _, rec := range r.records.all() {
				if rec.Status != 400 || rec.Reason != policy.ReasonBadRequest || !strings.Contains(rec.Error, "WebSocket") {
					t.Errorf("record: %+v", rec)
				}
			}
		})
	}
}

// HTTP/1.0 has no upgrade (RFC 9110 section 7.8): the request is forwarded without it.
func TestHandshakeOfHTTP10(t *testing.T) {
	for _, way := range connections {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots = fixed(disallow) })
			conn, target, host := way.open(r)
			fmt.Fprintf(conn, "GET %s/page/1 HTTP/1.0\r\nHost: %s\r\n%s\r\n", target, host, asksWell)
			all, err := answers(conn)
			if err != nil || len(all) != 1 || all[0].StatusCode != 200 {
				t.Fatalf("answers: %v, %v", all, err)
			}
			if got := r.site.Requests(); len(got) != 1 || got[0].Header.Get("Upgrade")+got[0].Header.Get("Connection") != "" {
				t.Errorf("the origin saw %v", got)
			}
		})
	}
}

// upgrade sends a request for a WebSocket and makes the origin answer. It returns both connections and the response.
func (r *rig) upgrade(t *testing.T, offered, answer string) (client, origin net.Conn, resp *http.Response, authority string) {
	t.Helper()
	arrived := make(chan net.Conn, 1)
	authority = r.wire(arrived)
	client = r.raw("GET http://" + authority + "/ws HTTP/1.1\r\nHost: " + authority + "\r\n" + asksWell + offered + "\r\n")
	origin = <-arrived
	t.Cleanup(func() { origin.Close() })
	if _, err := http.ReadRequest(bufio.NewReader(origin)); err != nil {
		t.Fatal(err)
	}
	io.WriteString(origin, answer+"\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		t.Fatal(err)
	}
	return client, origin, resp, authority
}

// A 101 counts only if it answers the client's handshake (RFC 6455 section 4.2.2). Otherwise the client gets 502, its
// next requests are judged, and no byte of them reaches the connection that the origin has upgraded.
func TestHandshakeOfTheOrigin(t *testing.T) {
	const offers = "Sec-WebSocket-Protocol: chat, superchat\r\nSec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"
	for name, row := range map[string]struct{ offered, answer string }{
		"no accept":                    {"", grantsUpgrade},
		"an accept for another key":    {"", grantsUpgrade + "Sec-WebSocket-Accept: HSmrc0sMlYUkAGmm5OPpG2HaGWk=\r\n"},
		"the key for an accept":        {"", grantsNonsense},
		"an accept in other letters":   {"", grantsUpgrade + "Sec-WebSocket-Accept: " + strings.ToLower(sampleAccept) + "\r\n"},
		"two accepts":                  {"", grantsWell + "Sec-WebSocket-Accept: x\r\n"},
		"the accept twice":             {"", grantsWell + "Sec-WebSocket-Accept: " + sampleAccept + "\r\n"},
		"a subprotocol unasked":        {"", grantsWell + "Sec-WebSocket-Protocol: chat\r\n"},
		"another subprotocol":          {offers, grantsWell + "Sec-WebSocket-Protocol: irc\r\n"},
		"a subprotocol in capitals":    {offers, grantsWell + "Sec-WebSocket-Protocol: CHAT\r\n"},
		"two subprotocols":             {offers, grantsWell + "Sec-WebSocket-Protocol: chat, superchat\r\n"},
		"two subprotocols, two fields": {offers, grantsWell + "Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Protocol: superchat\r\n"},
		"an extension unasked":         {"", grantsWell + "Sec-WebSocket-Extensions: permessage-deflate\r\n"},
		"another extension":            {offers, grantsWell + "Sec-WebSocket-Extensions: permessage-deflate, mux\r\n"},
		"another protocol":             {"", strings.Replace(grantsWell, "websocket", "h2c", 1)},
		"a second protocol":            {"", strings.Replace(grantsWell, "websocket", "websocket, h2c", 1)},
		"no Connection":                {"", strings.Replace(grantsWell, "Connection: Upgrade\r\n", "", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *Options) { o.Snapshots = fixed(disallow) })
			client, origin, resp, authority := r.upgrade(t, row.offered, row.answer)
			if resp.StatusCode != 502 || resp.Header.Get("Robotsproxy-Reason") != "upstream" {
				t.Fatalf("answer: %v", resp)
			}
			io.Copy(io.Discard, resp.Body)
			for range 3 {
				fmt.Fprintf(client, "GET http://%s/private/x HTTP/1.1\r\nHost: %s\r\n\r\n", authority, authority)
			}
			if rest, err := io.ReadAll(origin); err != nil || len(rest) > 0 {
				t.Errorf("behind the handshake the origin got %q, %v", rest, err)
			}
			if rec := r.last(1); rec.Status != 502 || rec.Reason != policy.ReasonUpstream || rec.Error == "" {
				t.Errorf("record: %+v", rec)
			}
		})
	}
}

// A response other than 101 changes no protocol, with any fields.
func TestHandshakeThatTheOriginDeclines(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots = fixed(disallow) })
	answer := strings.Replace(grantsWell, "101 Switching Protocols", "200 OK", 1) + "Content-Length: 2\r\n\r\nno"
	client, origin, resp, authority := r.upgrade(t, "", answer)
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 || string(body) != "no" || resp.Header.Get("Upgrade")+resp.Header.Get("Connection") != "" {
		t.Fatalf("answer: %v %q, %v", resp, body, err)
	}
	fmt.Fprintf(client, "GET http://%s/private/x HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", authority, authority)
	if all, err := answers(client); err != nil || len(all) != 1 || all[0].StatusCode != 403 {
		t.Errorf("the next request: %v, %v", all, err)
	}
	r.server.settings.Load().Transport.(siteTransport).CloseIdleConnections()
	if rest, _ := io.ReadAll(origin); len(rest) > 0 {
		t.Errorf("behind the handshake the origin got %q", rest)
	}
}

// The offers of the client and the choice of the origin pass.
func TestHandshakeThatIsSound(t *testing.T) {
	for name, row := range map[string]struct{ offered, answer string }{
		"nothing more":        {"", grantsWell},
		"other letters":       {"", strings.NewReplacer("Connection: Upgrade", "Connection: keep-alive, upgrade", "websocket", "WebSocket").Replace(grantsWell)},
		"a subprotocol":       {"Sec-WebSocket-Protocol: chat, superchat\r\n", grantsWell + "Sec-WebSocket-Protocol: superchat\r\n"},
		"no subprotocol":      {"Sec-WebSocket-Protocol: chat\r\n", grantsWell},
		"two offering fields": {"Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Protocol: superchat\r\n", grantsWell + "Sec-WebSocket-Protocol: superchat\r\n"},
		"an extension": {
			"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits, x-other\r\n",
			grantsWell + "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_max_window_bits=\"15\"\r\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
			client, origin, resp, _ := r.upgrade(t, row.offered, row.answer)
			want := []string{sampleAccept}
			if got := resp.Header["Sec-Websocket-Accept"]; resp.StatusCode != 101 || !slices.Equal(got, want) {
				t.Fatalf("answer: %v", resp)
			}
			io.WriteString(client, "\x81\x85\x00\x00\x00\x00hello")
			exactly(t, origin, "\x81\x85\x00\x00\x00\x00hello")
		})
	}
}

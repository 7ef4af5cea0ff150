package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
)

// teeConn keeps what is read.
type teeConn struct {
	net.Conn
	read bytes.Buffer
}

func (c *teeConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Write(p[:n])
	return n, err
}

// The first answer of a tunnel comes in one TLS record.
func TestAnswerInOneTLSRecord(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
	authority := fmt.Sprintf("a.example:%d", r.site.TLSPort())
	conn := &teeConn{Conn: r.raw("CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n\r\n")}
	if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != 200 {
		t.Fatalf("CONNECT: %v, %v", resp, err)
	}
	secure := tls.Client(conn, &tls.Config{RootCAs: r.ca, ServerName: "a.example"})
	if err := secure.Handshake(); err != nil {
		t.Fatal(err)
	}
	conn.read.Reset()
	fmt.Fprintf(secure, "GET /bytes/3000 HTTP/1.1\r\nHost: %s\r\n\r\n", authority)
	resp, err := http.ReadResponse(bufio.NewReader(secure), nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(resp.Body); err != nil || len(body) != 3000 {
		t.Fatalf("the body has %d bytes, %v", len(body), err)
	}
	if got := longRecords(conn.read.Bytes()); got != 1 {
		t.Errorf("the answer came in %d records, want 1", got)
	}
}

// longRecords counts the TLS records that are longer than a session ticket.
func longRecords(wire []byte) (n int) {
	const header = 5
	for len(wire) >= header {
		length := int(binary.BigEndian.Uint16(wire[3:]))
		if length > 1000 {
			n++
		}
		wire = wire[min(header+length, len(wire)):]
	}
	return n
}

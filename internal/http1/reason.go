package http1

import (
	"bytes"
	"strings"
)

// maxReason is the maximum length of a reason phrase, in bytes.
const maxReason = 200

// SetReason makes reason the reason phrase of the final response to the request that is being served (RFC 9112 section 4).
// net/http always writes the standard one of the status code. A reason longer than 200 bytes is cut; each rune that
// is not printable ASCII becomes a question mark. The handler calls it before it writes the header. A nil Conn permits it:
// HTTP/2 has no reason phrases.
func (c *Conn) SetReason(reason string) {
	if c == nil {
		return
	}
	reason = reasonPhrase(reason)
	c.reason.Store(&reason)
}

func reasonPhrase(s string) string {
	s = s[:min(len(s), maxReason)]
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

// Write sends bytes of responses.
func (c *Conn) Write(p []byte) (int, error) {
	reason := c.reason.Load()
	if reason == nil || !beginsFinal(p) {
		return c.Conn.Write(p)
	}
	c.reason.Store(nil)
	end := bytes.IndexByte(p, '\r')
	if end < 0 {
		return c.Conn.Write(p)
	}
	head := append([]byte(nil), p[:statusEnd]...)
	head = append(append(head, *reason...), p[end:]...)
	n, err := c.Conn.Write(head)
	return max(0, min(len(p), n-len(head)+len(p))), err
}

// statusEnd is the length of "HTTP/1.1 200 ".
const statusEnd = 13

// beginsFinal reports whether p begins with the status line of a final response.
func beginsFinal(p []byte) bool {
	return len(p) > statusEnd && bytes.HasPrefix(p, []byte("HTTP/1.")) && p[8] == ' ' && p[9] != '1' && p[statusEnd-1] == ' '
}

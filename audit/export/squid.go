package export

import (
	"bufio"
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
	"github.com/robotsproxy/robotsproxy/policy"
)

// squidWriter writes the native format of Squid's access.log:
//
//	time elapsed client code/status bytes method URL user hierarchy/address type
//
// The time is that of the end, in seconds with milliseconds; elapsed is in milliseconds. The bytes are those of the body
// alone, and the type of the content is not known. See https://wiki.squid-cache.org/Features/LogFormat.
type squidWriter struct{ out *bufio.Writer }

// Add implements writer.
func (s *squidWriter) Add(r *audit.Record) error {
	end := r.EndedAt
	if end.IsZero() {
		end = r.Time
	}
	method, url := cmp.Or(r.Method, "NONE"), auditview.URL(r)
	if r.Via == audit.Tunnel {
		method = http.MethodConnect
	}
	_, err := fmt.Fprintf(s.out, "%d.%03d %6d %s %s/%03d %d %s %s %s %s -\n",
		end.Unix(), end.Nanosecond()/1e6, max(0, end.Sub(r.Time).Milliseconds()), word(bareAddr(r.ClientAddr)), resultCode(r), r.Status, r.Bytes,
		word(method), word(url), word(r.Client), hierarchy(r))
	return err
}

// Close implements writer.
func (s *squidWriter) Close() error { return s.out.Flush() }

// resultCode returns the result code that Squid would log.
func resultCode(r *audit.Record) string {
	sent := !r.SentAt.IsZero()
	switch {
	case r.Reason == policy.ReasonClientLeft && sent:
		return "TCP_MISS_ABORTED"
	case r.Reason == policy.ReasonClientLeft:
		return "NONE_NONE_ABORTED"
	case r.Decision == policy.Deny, r.Decision == policy.Throttle:
		return "TCP_DENIED"
	case sent && r.Via == audit.Tunnel:
		return "TCP_TUNNEL"
	case sent:
		return "TCP_MISS"
	case r.Decision == policy.Error, r.EndedAt.IsZero():
		return "NONE_NONE"
	}
	return "TCP_HIT" // a robots.txt that was kept
}

// hierarchy returns where the response came from.
func hierarchy(r *audit.Record) string {
	if r.SentAt.IsZero() {
		return "HIER_NONE/-"
	}
	return "HIER_DIRECT/" + word(bareAddr(r.UpstreamAddr))
}

// bareAddr returns an address without its port, or the first address of a network.
func bareAddr(addr string) string {
	if ap, err := netip.ParseAddrPort(addr); err == nil {
		return ap.Addr().String()
	}
	addr, _, _ = strings.Cut(addr, "/")
	return addr
}

// word returns s without characters that would end a field or a line: they are percent-encoded, as Squid does.
func word(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return cmp.Or(b.String(), "-")
}

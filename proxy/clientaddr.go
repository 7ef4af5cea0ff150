package proxy

import (
	"context"
	"log/slog"
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/robotsproxy/robotsproxy/audit"
)

// clientAddrs is the treatment of clients' addresses, which a reload may change.
type clientAddrs struct {
	mode atomic.Pointer[audit.AddrMode]
}

func (a *clientAddrs) set(m audit.AddrMode) { a.mode.Store(&m) }

// addrLog is a slog.Handler that writes of clients' addresses only what Options.ClientAddr keeps.
type addrLog struct {
	slog.Handler
	addrs *clientAddrs
}

// httpAddr matches the address in messages of net/http, such as "http: TLS handshake error from 192.0.2.7:50123: EOF".
var httpAddr = regexp.MustCompile(`^(http: .*? (?:from|serving) )(\S+)(: )`)

func (h addrLog) Handle(ctx context.Context, r slog.Record) error {
	mode := *h.addrs.mode.Load()
	if mode == audit.AddrKeep || mode == "" {
		return h.Handler.Handle(ctx, r)
	}
	message := r.Message
	if m := httpAddr.FindStringSubmatch(message); m != nil {
		message = m[1] + "a client" + strings.TrimPrefix(message, m[1]+m[2])
	}
	masked := slog.NewRecord(r.Time, r.Level, message, r.PC)
	addr := clientAddrOf(r)
	r.Attrs(func(a slog.Attr) bool {
		masked.AddAttrs(maskAttr(a, addr, mode))
		return true
	})
	return h.Handler.Handle(ctx, masked)
}

func clientAddrOf(r slog.Record) (addr string) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "client_addr" {
			addr = a.Value.String()
		}
		return addr == ""
	})
	return addr
}

// maskAttr applies mode to addr as the value of a, or as a part of an error.
func maskAttr(a slog.Attr, addr string, mode audit.AddrMode) slog.Attr {
	if a.Key == "client_addr" {
		return slog.String(a.Key, mode.Apply(addr))
	}
	if err, ok := a.Value.Any().(error); ok && addr != "" {
		return slog.String(a.Key, withoutAddr(err.Error(), addr, mode))
	}
	return a
}

// withoutAddr replaces addr, a client's address with its port, in the text of an error of its connection.
func withoutAddr(text, addr string, mode audit.AddrMode) string {
	if mode == audit.AddrKeep || mode == "" || addr == "" {
		return text
	}
	kept := mode.Apply(addr)
	if kept == "" {
		kept = "client"
	}
	return strings.ReplaceAll(text, addr, kept)
}

func (h addrLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return addrLog{h.Handler.WithAttrs(attrs), h.addrs}
}

func (h addrLog) WithGroup(name string) slog.Handler {
	return addrLog{h.Handler.WithGroup(name), h.addrs}
}

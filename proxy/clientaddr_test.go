package proxy

import (
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/audit"
)

// TestClientAddr asks with a wrong password, begins a TLS handshake badly, and reloads between modes. No part of the
// address that the mode cuts is in the records or in the log.
func TestClientAddr(t *testing.T) {
	for _, tt := range []struct {
		mode audit.AddrMode
		want string // a regular expression
	}{
		{audit.AddrKeep, `^127\.0\.0\.9:\d+$`},
		{audit.AddrMask, `^127\.0\.0\.0/24$`},
		{audit.AddrDrop, `^$`},
	} {
		t.Run(string(tt.mode), func(t *testing.T) {
			var options Options
			r := newRig(t, func(o *Options) {
				o.Users, o.AuthRequired, o.ClientAddr = users(t), true, audit.AddrDrop
				options = *o
			})
			options.ClientAddr = tt.mode
			if err := r.server.Reload(options); err != nil {
				t.Fatal(err)
			}
			client := as(r.clientFrom("127.0.0.9"), "news", "guess")
			r.get(client, r.url("http", "/page/1"))
			_, _ = client.Get(r.url("https", "/page/1"))
			for i := range 2 {
				if rec := r.last(i + 1); !regexp.MustCompile(tt.want).MatchString(rec.ClientAddr) ||
					tt.mode != audit.AddrKeep && strings.Contains(rec.Error, "127.0.0.9") {
					t.Errorf("record with the address %q and the error %q", rec.ClientAddr, rec.Error)
				}
			}
			r.server.Close()
			log := r.log.String()
			if kept := strings.Contains(log, "127.0.0.9"); kept != (tt.mode == audit.AddrKeep) {
				t.Errorf("with %s the log is:\n%s", tt.mode, log)
			}
			if !strings.Contains(log, "a password is refused") {
				t.Errorf("the log has no refused password:\n%s", log)
			}
		})
	}
}

func TestAddrLogMasksErrors(t *testing.T) {
	var log strings.Builder
	addrs := &clientAddrs{}
	addrs.set(audit.AddrMask)
	l := slog.New(addrLog{slog.NewTextHandler(&log, nil), addrs})
	const client = "192.0.2.7:50123"
	l.Info("a TLS handshake with a client failed", "client_addr", client, "err", errText("read tcp 10.0.0.1:3128->"+client+": reset"))
	l.Info("http: TLS handshake error from " + client + ": EOF")
	l.With("key", "limits.connections").WithGroup("g").Info("a limit is reached", "client_addr", client)
	if text := log.String(); strings.Contains(text, "192.0.2.7") || !strings.Contains(text, "->192.0.2.0/24: reset") ||
		!strings.Contains(text, "limits.connections") {
		t.Error(text)
	}
}

type errText string

func (e errText) Error() string { return string(e) }

package audit

import "testing"

func TestAddrModes(t *testing.T) {
	for _, tt := range []struct {
		mode       AddrMode
		addr, want string
	}{
		{AddrKeep, "192.0.2.7:50123", "192.0.2.7:50123"},
		{AddrKeep, "@", "@"},
		{AddrMask, "192.0.2.7:50123", "192.0.2.0/24"},
		{AddrMask, "192.0.2.7", "192.0.2.0/24"},
		{AddrMask, "[2001:db8:1:2::7]:50123", "2001:db8:1::/48"},
		{AddrMask, "[fe80::1%eth0]:50123", "fe80::/48"},
		{AddrMask, "[::ffff:192.0.2.7]:50123", "192.0.2.0/24"},
		{AddrMask, "@", ""},
		{AddrMask, "", ""},
		{AddrDrop, "192.0.2.7:50123", ""},
		{"", "192.0.2.7:50123", "192.0.2.7:50123"},
		{"other", "192.0.2.7:50123", "192.0.2.0/24"},
	} {
		if got := tt.mode.Apply(tt.addr); got != tt.want {
			t.Errorf("AddrMode(%q).Apply(%q) = %q, want %q", tt.mode, tt.addr, got, tt.want)
		}
	}
}

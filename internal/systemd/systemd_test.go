package systemd

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestNamed(t *testing.T) {
	for _, row := range []struct{ names, want []string }{
		{[]string{"proxy", "admin"}, []string{"proxy", "admin"}},
		{[]string{"admin", "x.socket"}, []string{"admin", "proxy"}},
		{[]string{"x.socket", "proxy"}, []string{"admin", "proxy"}},
		{[]string{"LISTEN_FD_3", "unknown"}, []string{"proxy", "admin"}},
		{[]string{"x.socket", "x.socket", "x.socket"}, []string{"proxy", "admin", "x.socket"}},
		{[]string{"porxy", "x.socket"}, []string{"porxy", "proxy"}},
	} {
		var files []*os.File
		for _, name := range row.names {
			files = append(files, os.NewFile(^uintptr(0)>>1, name))
		}
		var got []string
		for _, f := range named(files, []string{"proxy", "admin"}) {
			got = append(got, f.name)
		}
		if !slices.Equal(got, row.want) {
			t.Errorf("named(%q) = %q, want %q", row.names, got, row.want)
		}
	}
}

func TestWithoutManager(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	t.Setenv("LISTEN_FDS", "1")
	t.Setenv("LISTEN_PID", "1") // of another process
	if sockets, err := Sockets("proxy"); len(sockets) != 0 || err != nil {
		t.Errorf("Sockets = %v, %v; want none", sockets, err)
	}
	if err := Notify(Ready); err != nil {
		t.Errorf("Notify = %v, want nil", err)
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "nothing"))
	if err := Notify(Ready); err == nil {
		t.Error("Notify to no socket: want an error")
	}
}

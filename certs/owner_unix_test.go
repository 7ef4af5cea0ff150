//go:build unix

package certs

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// Root may rotate the CA of a proxy that runs as somebody else: that one can read the new key.
func TestRotatedKeyKeepsItsOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can work on another user's CA")
	}
	const nobody = 65534
	dir := t.TempDir()
	a, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(keyFile(dir, a.Certificate()), nobody, nobody); err != nil {
		t.Fatal(err)
	}
	if err := a.Rotate(time.Hour); err != nil {
		t.Fatal(err)
	}
	all, err := a.CAs()
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(keyFile(dir, all[1].Certificate))
	if err != nil {
		t.Fatal(err)
	}
	if uid := info.Sys().(*syscall.Stat_t).Uid; uid != nobody {
		t.Errorf("the key of the next CA belongs to %d, want %d, as the one before does", uid, nobody)
	}
}

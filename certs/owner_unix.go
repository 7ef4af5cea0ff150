//go:build unix

package certs

import (
	"os"
	"syscall"
)

// chownLike gives path the owner of the file like. They differ only if root rotates the CA of a proxy that runs as
// another user, which could not read a key that belongs to root.
func chownLike(path, like string) error {
	info, err := os.Stat(like)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(owner.Uid) == os.Geteuid() {
		return nil
	}
	return os.Lchown(path, int(owner.Uid), int(owner.Gid))
}

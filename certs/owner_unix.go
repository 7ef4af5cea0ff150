//go:build unix

package certs

import (
	"os"
	"syscall"
)

// chownLike gives path to whom the file like belongs. That is somebody else only where root works on the CA of a proxy
// that runs as another user: a key that stayed root's could not be read by it.
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

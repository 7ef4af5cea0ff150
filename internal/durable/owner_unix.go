//go:build unix

package durable

import (
	"io/fs"
	"os"
	"syscall"
)

// ownerOf returns the ID of the user that owns a file, if known.
func ownerOf(info fs.FileInfo) (user int, known bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}

// keepOwner gives path, which this process has made, the owner and the group of like.
func keepOwner(path string, like fs.FileInfo) error {
	want, known := like.Sys().(*syscall.Stat_t)
	info, err := os.Lstat(path)
	if err != nil || !known {
		return err
	}
	if made := info.Sys().(*syscall.Stat_t); made.Uid == want.Uid && made.Gid == want.Gid {
		return nil
	}
	return os.Lchown(path, int(want.Uid), int(want.Gid))
}

//go:build unix

package durable

import (
	"io/fs"
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

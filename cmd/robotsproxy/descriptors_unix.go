//go:build unix

package main

import "syscall"

// descriptors returns the maximum number of open file descriptors. The Go runtime has raised the soft limit to the hard
// limit.
func descriptors() (n int, known bool) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, false
	}
	return int(min(uint64(limit.Cur), 1<<30)), true
}

//go:build unix

package audit

import (
	"errors"
	"os"
	"syscall"
)

// tryLockExclusive takes the exclusive lock, which means that no other process has f open for writing. If another
// process has, it takes the shared lock and reports false.
func tryLockExclusive(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, lockShared(f)
	}
	return err == nil, err
}

// lockShared marks f as open for writing by this process, until f is closed.
func lockShared(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_SH) }

// lockExclusive waits for the exclusive lock of f, and holds it until f is closed.
func lockExclusive(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }

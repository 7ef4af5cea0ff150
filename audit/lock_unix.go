//go:build unix

package audit

import (
	"errors"
	"os"
	"syscall"
)

// tryLockExclusive takes the lock that says nobody else has f open for writing. Where somebody has, it takes the shared
// one.
func tryLockExclusive(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, lockShared(f)
	}
	return err == nil, err
}

// lockShared says that f is open for writing here. It lasts until f is closed.
func lockShared(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_SH) }

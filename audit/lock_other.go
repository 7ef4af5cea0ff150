//go:build !unix

package audit

import "os"

// Without flock nobody can tell whether another process is in the middle of a line, so none is ever cut off.
func tryLockExclusive(*os.File) (bool, error) { return false, nil }

func lockShared(*os.File) error { return nil }

//go:build !unix

package audit

import "os"

// Without flock it is unknown whether another process is writing a line, so repair never truncates the file.
func tryLockExclusive(*os.File) (bool, error) { return false, nil }

func lockShared(*os.File) error { return nil }

func lockExclusive(*os.File) error { return nil }

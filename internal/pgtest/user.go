package pgtest

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// attributes makes the server run as the user postgres if the test runs as root.
func attributes() *syscall.SysProcAttr {
	if os.Getuid() != 0 {
		return nil
	}
	uid, gid, err := owner()
	if err != nil {
		return nil // initdb refuses, with the cause
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
}

// give makes the user of the server the owner of files.
func give(files ...string) error {
	if os.Getuid() != 0 {
		return nil
	}
	uid, gid, err := owner()
	if err != nil {
		return fmt.Errorf("PostgreSQL refuses to run as root: %w", err)
	}
	for _, name := range files {
		if err := os.Chown(name, int(uid), int(gid)); err != nil {
			return err
		}
	}
	return nil
}

func owner() (uid, gid uint32, err error) {
	u, err := user.Lookup("postgres")
	if err != nil {
		return 0, 0, err
	}
	id, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return 0, 0, err
	}
	group, err := strconv.ParseUint(u.Gid, 10, 32)
	return uint32(id), uint32(group), err
}

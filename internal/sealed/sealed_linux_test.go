package sealed

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The cause of an error follows from the settings of the system.
func TestCause(t *testing.T) {
	const someone = 1000
	for _, row := range []struct {
		name string
		err  error
		user int
		file string // below /proc
		text string
		want string
	}{
		{"limit 0", syscall.ENOSPC, someone, "sys/user/max_user_namespaces", "0\n", "sysctl -w user.max_user_namespaces="},
		{"limit 0 of networks", syscall.ENOSPC, 0, "sys/user/max_net_namespaces", "0\n", "sysctl -w user.max_net_namespaces="},
		{"limit reached", syscall.ENOSPC, someone, "sys/user/max_user_namespaces", "5\n", "limit of namespaces is reached"},
		{"old kernel", syscall.EINVAL, someone, "self/status", "", "CONFIG_USER_NS"},
		{"Debian", syscall.EPERM, someone, "sys/kernel/unprivileged_userns_clone", "0\n", "sysctl -w kernel.unprivileged_userns_clone=1"},
		{"AppArmor", syscall.EACCES, someone, "sys/kernel/apparmor_restrict_unprivileged_userns", "1\n", "AppArmor"},
		{"AppArmor and root", syscall.EPERM, 0, "sys/kernel/apparmor_restrict_unprivileged_userns", "1\n", "SELinux"},
		{"container", syscall.EPERM, 0, "self/status", "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n", "seccomp"},
		{"no filter", syscall.EPERM, someone, "self/status", "Name:\tx\nSeccomp:\t0\n", "chroot"},
		{"no /proc", syscall.ENOENT, someone, "x", "", "/proc"},
	} {
		t.Run(row.name, func(t *testing.T) {
			proc := t.TempDir()
			path := filepath.Join(proc, row.file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(row.text), 0o644); err != nil {
				t.Fatal(err)
			}
			if got := cause(proc, row.user, fmt.Errorf("starting: %w", row.err)); !strings.Contains(got, row.want) {
				t.Errorf("%q, want %q in it", got, row.want)
			}
		})
	}
}

package sealed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// explain returns err with its probable cause on this system, and what to do about it.
func explain(err error) error {
	return fmt.Errorf("making a network namespace for the program: %w; the program was not started\n  %s\n"+
		"  Without --sealed, a firewall can block direct connections: see docs/operations.md",
		err, cause("/proc", os.Geteuid(), err))
}

// cause returns the probable cause of err for user, and what to do about it, from the files in proc.
func cause(proc string, user int, err error) string {
	setting := func(key string) string {
		text, _ := os.ReadFile(filepath.Join(proc, "sys", strings.ReplaceAll(key, ".", "/")))
		return strings.TrimSpace(string(text))
	}
	switch {
	case errors.Is(err, syscall.ENOSPC):
		for _, key := range []string{"user.max_user_namespaces", "user.max_net_namespaces"} {
			if setting(key) == "0" {
				return key + " is 0 here, which permits no such namespace: sysctl -w " + key + "=10000"
			}
		}
		return "The limit of namespaces is reached: raise user.max_user_namespaces and user.max_net_namespaces with sysctl."
	case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENOSYS):
		return "This kernel lacks user namespaces or network namespaces (CONFIG_USER_NS, CONFIG_NET_NS)."
	case !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.EACCES):
		return "It needs user namespaces and network namespaces, and the folder /proc."
	case user != 0 && setting("kernel.unprivileged_userns_clone") == "0":
		return "kernel.unprivileged_userns_clone is 0 here: sysctl -w kernel.unprivileged_userns_clone=1, or run it as root."
	case user != 0 && setting("kernel.apparmor_restrict_unprivileged_userns") == "1":
		return "AppArmor restricts user namespaces here: use the profile in docs/operations.md, or run it as root."
	case hasSeccomp(proc):
		return "A seccomp filter probably forbids it, as in most containers: start the container with a filter that permits\n" +
			"  user namespaces, or give the crawler a network that reaches the proxy only, as docker-compose.yml does."
	default:
		return "The system forbids user namespaces to this process: a chroot and security modules such as SELinux can do that."
	}
}

// hasSeccomp reports whether a filter restricts the system calls of this process.
func hasSeccomp(proc string) bool {
	status, _ := os.ReadFile(filepath.Join(proc, "self", "status"))
	return strings.Contains(string(status), "\nSeccomp:\t2\n")
}

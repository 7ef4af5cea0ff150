package systemd

import (
	"strconv"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// Reloading returns the assignments at the start of a reload. Ready ends it. A service of Type=notify-reload needs both.
func Reloading() []string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return []string{daemon.SdNotifyReloading}
	}
	return []string{daemon.SdNotifyReloading, "MONOTONIC_USEC=" + strconv.FormatInt(now.Nano()/1000, 10)}
}

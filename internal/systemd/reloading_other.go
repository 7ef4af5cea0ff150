//go:build !linux

package systemd

import "github.com/coreos/go-systemd/v22/daemon"

// Reloading returns the assignments at the start of a reload. Ready ends it.
func Reloading() []string { return []string{daemon.SdNotifyReloading} }

// Package systemd talks to a service manager that speaks the protocols of systemd: it takes over the sockets that the
// manager has opened (sd_listen_fds), and reports the state of the service (sd_notify).
//
//	sockets, err := systemd.Sockets("proxy", "admin")
//	...
//	err = systemd.Notify(systemd.Ready, systemd.Status("listening at 127.0.0.1:3128"))
//	go systemd.Watch(ctx, check, log)
//
// Without such a manager there are no sockets, and Notify and Watch do nothing.
package systemd

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
)

// Assignments for Notify. See sd_notify(3).
const (
	Ready    = daemon.SdNotifyReady
	Stopping = daemon.SdNotifyStopping
)

// Status returns the assignment of a text that "systemctl status" shows.
func Status(text string) string { return "STATUS=" + strings.ReplaceAll(text, "\n", " ") }

// Notify reports assignments, such as Ready, to the service manager in one message.
func Notify(assignments ...string) error {
	if _, err := daemon.SdNotify(false, strings.Join(assignments, "\n")); err != nil {
		return fmt.Errorf("notifying the service manager: %w", err)
	}
	return nil
}

// Sockets returns the TCP listeners that the service manager has opened for this process, by name
// (FileDescriptorName= of the socket unit). Sockets without a name get the names that are left, in the order of the
// arguments. A name that is not an argument is an error, and so are two sockets with one name. Only the first call
// returns the sockets.
func Sockets(names ...string) (map[string]net.Listener, error) {
	files := activation.Files(true)
	sockets := make(map[string]net.Listener)
	var err error
	for _, f := range named(files, names) {
		if err == nil {
			err = addSocket(sockets, f, names)
		}
		f.file.Close()
	}
	if err == nil {
		return sockets, nil
	}
	for _, l := range sockets {
		l.Close()
	}
	return nil, fmt.Errorf("sockets of the service manager: %w", err)
}

// socketFile is an inherited descriptor with its name.
type socketFile struct {
	name string
	file *os.File
}

// named gives the files without a name those of the names that no file has, in order, while there are any.
func named(files []*os.File, names []string) []socketFile {
	left := slices.Clone(names)
	for _, f := range files {
		if i := slices.Index(left, f.Name()); i >= 0 {
			left = slices.Delete(left, i, i+1)
		}
	}
	sockets := make([]socketFile, len(files))
	for i, f := range files {
		sockets[i] = socketFile{f.Name(), f}
		if isUnnamed(f.Name()) && len(left) > 0 {
			sockets[i].name, left = left[0], left[1:]
		}
	}
	return sockets
}

// isUnnamed reports whether name is one that systemd or go-systemd gives to a socket without FileDescriptorName=.
func isUnnamed(name string) bool {
	return name == "unknown" || strings.HasSuffix(name, ".socket") || strings.HasPrefix(name, "LISTEN_FD_")
}

func addSocket(sockets map[string]net.Listener, f socketFile, names []string) error {
	switch {
	case !slices.Contains(names, f.name):
		return fmt.Errorf("there is no use for the socket %q; FileDescriptorName= must be one of %s",
			f.name, strings.Join(names, ", "))
	case sockets[f.name] != nil:
		return fmt.Errorf("two sockets have the name %q", f.name)
	}
	l, err := net.FileListener(f.file)
	if err != nil {
		return fmt.Errorf("the socket %q: %w", f.name, err)
	}
	if _, ok := l.(*net.TCPListener); !ok {
		l.Close()
		return fmt.Errorf("the socket %q listens at %s, which is not a TCP address", f.name, l.Addr())
	}
	sockets[f.name] = l
	return nil
}

// Watch calls check three times in each period of the watchdog (WatchdogSec=), and reports each success, until ctx ends.
// check must return within the time-out of its context. The service manager restarts the service after a period without
// a success. If the service manager has set no watchdog, Watch returns at once.
func Watch(ctx context.Context, check func(context.Context) error, log *slog.Logger) {
	period, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("the watchdog of the service manager is not served", "err", err)
	}
	if period == 0 {
		return
	}
	tick := time.NewTicker(period / 3)
	defer tick.Stop()
	for {
		if err := withTimeout(ctx, period/3, check); err == nil {
			err = Notify(daemon.SdNotifyWatchdog)
			if err != nil {
				log.Warn("the watchdog of the service manager got no report", "err", err)
			}
		} else if ctx.Err() == nil {
			log.Error("the proxy does not answer its own check; the service manager may restart it", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func withTimeout(ctx context.Context, d time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return check(ctx)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
	"github.com/robotsproxy/robotsproxy/internal/settings"
	"github.com/robotsproxy/robotsproxy/internal/systemd"
	"github.com/robotsproxy/robotsproxy/internal/watch"
)

// reloads is how a service reads its configuration again.
type reloads struct {
	readConfig func() (*config.Config, []settings.Warning, error)
	configFile string // empty without one
	watchFiles bool
	level      *slog.LevelVar
	handler    *admin.Handler
	metrics    *admin.Metrics
	hangup     chan os.Signal
	watcher    *watch.Watcher // nil unless files are watched

	mu      sync.Mutex   // held by reload
	failed  atomic.Bool  // the last reload did
	inForce atomic.Int64 // Unix time since when the configuration is in force, in seconds
	last    atomic.Pointer[lastReload]
}

// lastReload is the result of a reload.
type lastReload struct {
	at      time.Time
	changes []settings.Change
	err     error
}

// gauges returns the gauges of the last reload.
func (r *reloads) gauges() []admin.Gauge {
	return []admin.Gauge{
		gauge("config_last_reload_successful", "1 unless the last reload of the configuration failed.", func() int {
			if r.failed.Load() {
				return 0
			}
			return 1
		}),
		gauge("config_last_reload_success_timestamp_seconds", "Unix time of the start or of the last reload that succeeded.", r.inForce.Load),
	}
}

// watch reloads when the configuration, or a file that it names, changes.
func (s *service) watch() {
	if !s.watchFiles {
		return
	}
	s.watcher = watch.New(watch.Options{Changed: func() { _, _ = s.reload("a file has changed") }, Logger: s.log})
	s.watcher.Set(s.watchedFiles())
}

func (s *service) unwatch() {
	if s.watcher != nil {
		s.watcher.Close()
	}
}

// watchedFiles returns the configuration file and the files that it names.
func (s *service) watchedFiles() (paths []string) {
	if s.configFile != "" {
		paths = append(paths, s.configFile)
	}
	for _, file := range s.components.control.config().Files() {
		paths = append(paths, file.Text)
	}
	return paths
}

// reloadOnHangup reloads at each SIGHUP until ctx ends.
func (s *service) reloadOnHangup(ctx context.Context) {
	for {
		select {
		case <-s.hangup:
			_, _ = s.reload("SIGHUP") // it has logged the error
		case <-ctx.Done():
			return
		}
	}
}

// reload reads the configuration and puts it in force. It logs why it was called, and what has changed or is wrong.
func (s *service) reload(why string) ([]settings.Change, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notify(systemd.Reloading()...)
	defer s.notify(systemd.Ready)
	changes, err := s.tryReload()
	s.failed.Store(err != nil)
	s.last.Store(&lastReload{time.Now(), changes, err})
	if err != nil {
		s.logFaults(why, err)
		return nil, err
	}
	s.inForce.Store(time.Now().Unix())
	s.logChanges(why, changes)
	return changes, nil
}

func (s *service) tryReload() ([]settings.Change, error) {
	if err := checkRegular(s.configFile); err != nil {
		return nil, err
	}
	cfg, warnings, err := s.readConfig()
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		s.log.Warn("in the configuration", "warning", w.String())
	}
	changes, err := s.components.reload(cfg)
	if err != nil {
		return nil, err
	}
	cfg = s.components.control.config()
	s.level.Set(cfg.Log.Level)
	s.requests.SetMode(requestMode(cfg.Log.Requests))
	s.metrics.SetClients(clientNames(cfg))
	if s.watcher != nil {
		s.watcher.Set(s.watchedFiles())
	}
	return changes, s.handler.SetHosts(adminHosts(cfg)) // config has checked the names
}

// checkRegular returns an error if there is something other than a file at path. To open a named pipe would block all
// later reloads.
func checkRegular(path string) error {
	info, err := os.Stat(path)
	if err != nil || info.Mode().IsRegular() {
		return nil // reading the file reports the error
	}
	return usage(fmt.Errorf("%s is not a regular file (%s); only serve, at its start, reads the configuration from a pipe",
		path, info.Mode().Type()))
}

// logFaults logs each fault of a configuration that was not put in force.
func (s *service) logFaults(why string, err error) {
	s.log.Error("THE CONFIGURATION WAS NOT RELOADED: the one before stays in force", "why", why)
	var faults settings.Problems
	if !errors.As(err, &faults) {
		s.log.Error("in the configuration", "fault", err.Error())
		return
	}
	for _, fault := range faults {
		s.log.Error("in the configuration", "fault", fault.Error())
	}
}

// loggedChanges bounds the changes of one reload in the log.
const loggedChanges = 100

func (s *service) logChanges(why string, changes []settings.Change) {
	if len(changes) == 0 {
		s.log.Info("the configuration was read again: nothing has changed", "why", why)
		return
	}
	s.log.Info("the configuration was reloaded", "why", why, "changes", len(changes))
	for i, c := range changes {
		switch {
		case i == loggedChanges:
			s.log.Info("the other changes are not logged", "changes", len(changes)-i)
			return
		case c.Restart:
			s.log.Warn("a change needs a restart", "key", c.Key, "change", c.Text)
		default:
			s.log.Info("changed", "change", c.String())
		}
	}
}

// reloadFor is reload for the admin API.
func (s *service) reloadFor(why string) ([]admin.Change, error) {
	changes, err := s.reload(why)
	return adminChanges(changes), err
}

func adminChanges(changes []settings.Change) []admin.Change {
	all := make([]admin.Change, len(changes))
	for i, c := range changes {
		all[i] = admin.Change{Key: c.Key, Text: c.String(), Restart: c.Restart}
	}
	return all
}

func newReload(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Make a running robotsproxy read its configuration again, and print what has changed",
		Long: `Make a running robotsproxy read its configuration again, with the flags and variables with which it was
started, and print what has changed. Crawls go on meanwhile. A change that needs a restart is printed as such and has no
effect until then. If the configuration is wrong, nothing changes: reload prints all faults and exits with status 2.`,
		Args: noArgs,
	}
	api := newAPICommand(cmd, std)
	cmd.RunE = func(*cobra.Command, []string) error {
		var answer admin.Reloaded
		return api.show(apiRequest{method: http.MethodPost, path: "/reload"}, &answer, func(w io.Writer) error {
			if len(answer.Changes) == 0 {
				_, err := fmt.Fprintln(w, "Nothing has changed.")
				return err
			}
			for _, c := range answer.Changes {
				if _, err := fmt.Fprintln(w, safetext.Lines(c.Text)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return cmd
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/audit/proof"
	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/auditquery"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
)

func newWatch(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch HOST...",
		Short: "Report changes of robots.txt files, with the requests that they decide otherwise",
		Long: `Ask hosts for their robots.txt from time to time, and print each change: the lines that changed, and which of the
requests that were recorded in the 30 days before it would be decided otherwise, without exemptions, interventions and
modes. A change that a crawl finds meanwhile is printed too.

HOST is a host such as a.example, for all of its origins, or one origin such as https://a.example:8443. A host that was
never fetched is asked at https.

The running proxy fetches the files, or, if none runs, this command does it with the data folder and the configuration of
the proxy: with its User-Agent, its limits and its records.

With --once it asks each host once. The exit status is then 1 if a change decides a recorded request otherwise, 4 if a
robots.txt cannot be fetched, and else 0.`,
		Example: `  robotsproxy watch a.example https://b.example:8443
  robotsproxy watch --once --since 24h a.example || mail -s "robots.txt" ops@example.org`,
	}
	w := &hostWatch{std: std, settings: configFlags(cmd, "admin.listen", "admin.token_file")}
	f := cmd.Flags()
	f.StringVar(&w.adminURL, "admin", "", "call the instance with this `URL` of the admin listener")
	f.DurationVar(&w.every, "every", time.Hour, "ask each host after this `DURATION`, 5m at least")
	f.BoolVar(&w.once, "once", false, "ask each host once")
	f.StringVar(&w.sinceText, "since", "", "print older changes too, that were seen from this `TIME` on: 24h ago, or 2026-11-22")
	f.StringVar(&w.format, "format", "text", "print as `FORMAT`: text, or jsonl with one object for each change")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usage(errors.New("watch needs a HOST, such as a.example or https://a.example"))
		}
		w.hosts = args
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if err := w.check(time.Now()); err != nil {
			return usage(err)
		}
		if w.config, err = w.settings.load(cmd, std); err != nil {
			return err
		}
		return interruptible(cmd.Context(), w.run)
	}
	return cmd
}

const (
	leastEvery = 5 * time.Minute
	lookEvery  = 5 * time.Second // at a running proxy, for changes that crawls have found
)

// hostWatch watches the robots.txt files of hosts.
type hostWatch struct {
	std      stdio
	settings *configSource
	config   *config.Config
	hosts    []string
	adminURL string // if empty, admin.listen
	every    time.Duration
	once     bool
	format   string

	sinceText string
	since     map[string]time.Time // by host: changes before it were printed, or are not to be
	altered   bool                 // a change decides a recorded request otherwise
	failed    bool                 // a robots.txt cannot be fetched
}

// check checks the flags.
func (w *hostWatch) check(now time.Time) error {
	if w.format != "text" && w.format != string(auditview.JSONL) {
		return fmt.Errorf("--format %q is neither text nor jsonl", w.format)
	}
	if w.every < leastEvery {
		return fmt.Errorf("--every %v is less than 5m, which a robots.txt stays in use at least", w.every)
	}
	since, err := auditquery.Moment("--since", w.sinceText, now)
	if err != nil {
		return err
	}
	if since.IsZero() {
		since = now
	}
	w.since = make(map[string]time.Time)
	for _, host := range w.hosts {
		if err := admin.CheckName(host); err != nil {
			return err
		}
		w.since[host] = since
	}
	return nil
}

// run asks the hosts, once or until ctx ends. Later failures than the first are only printed.
func (w *hostWatch) run(ctx context.Context) error {
	if err := w.ask(ctx); err != nil {
		return err
	}
	if w.once {
		return w.status()
	}
	fmt.Fprintf(w.std.err, "robotsproxy: each host is asked for its robots.txt again after %v\n", w.every)
	for next := time.Now().Add(w.every); ; {
		select {
		case <-time.After(min(lookEvery, time.Until(next))):
		case <-ctx.Done():
			return ctx.Err()
		}
		var err error
		if time.Now().Before(next) {
			err = w.look(ctx)
		} else {
			next = time.Now().Add(w.every)
			err = w.ask(ctx)
		}
		if err != nil && ctx.Err() == nil {
			w.say(err)
		}
	}
}

// status returns the exit status of --once.
func (w *hostWatch) status() error {
	switch {
	case w.altered:
		return &exitError{code: exitNo}
	case w.failed:
		return &exitError{code: exitUnknown}
	}
	return nil
}

func (w *hostWatch) say(err error) {
	fmt.Fprintf(w.std.err, "robotsproxy: %s\n", safetext.Lines(err.Error()))
}

// ask has each host asked for its robots.txt, and prints the changes.
func (w *hostWatch) ask(ctx context.Context) error {
	files, end, err := w.open(ctx)
	if err != nil {
		return err
	}
	for _, host := range w.hosts {
		effects, err := w.visit(ctx, files, host)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			w.failed = true
			w.say(fmt.Errorf("%s: %w", host, err))
		}
		if err := w.print(host, effects); err != nil {
			return errors.Join(err, end())
		}
	}
	return end()
}

// visit has a host asked for its files, and returns the changes that were not printed.
func (w *hostWatch) visit(ctx context.Context, files watchedFiles, host string) ([]*proof.Effect, error) {
	if err := w.refresh(ctx, files, host); err != nil {
		return nil, err
	}
	return files.changes(ctx, host, w.since[host])
}

// look prints the changes that a running proxy has seen.
func (w *hostWatch) look(ctx context.Context) error {
	running, err := w.running(ctx)
	if running == nil || err != nil {
		return err
	}
	for _, host := range w.hosts {
		effects, err := running.changes(ctx, host, w.since[host])
		if err != nil {
			return err
		}
		if err := w.print(host, effects); err != nil {
			return err
		}
	}
	return nil
}

// watchedFiles are the robots.txt files of a running proxy, or those in the data folder. Their errors have an exit
// status.
type watchedFiles interface {
	refresh(ctx context.Context, name string) (admin.FileList, error)
	changes(ctx context.Context, name string, since time.Time) ([]*proof.Effect, error)
}

// refresh has a host asked for its files. If none is known, that is the file at https.
func (w *hostWatch) refresh(ctx context.Context, files watchedFiles, host string) error {
	list, err := files.refresh(ctx, host)
	if exit := (*exitError)(nil); errors.As(err, &exit) && exit.code == exitNo && !strings.Contains(host, "://") {
		list, err = files.refresh(ctx, "https://"+host)
	}
	if err != nil {
		return err
	}
	showErrors(w.std.err, list.Files, hasError)
	w.failed = w.failed || slices.ContainsFunc(list.Files, func(f admin.File) bool { return isMissing(f) || f.State == "unreachable" })
	return nil
}

// print prints changes of a host.
func (w *hostWatch) print(host string, effects []*proof.Effect) error {
	o := auditview.Options{Format: auditview.Table, Zone: time.Local}
	if w.format != "text" {
		o.Format = auditview.JSONL
	}
	for _, e := range effects {
		if err := auditview.Effect(w.std.out, o, e); err != nil {
			return err
		}
		w.since[host] = e.Time.Add(time.Microsecond)
		w.altered = w.altered || e.Alters()
	}
	return nil
}

// open returns the files of the running proxy or, if none runs, those in the data folder. The caller must call end.
func (w *hostWatch) open(ctx context.Context) (files watchedFiles, end func() error, err error) {
	running, err := w.running(ctx)
	if err != nil {
		return nil, nil, err
	}
	if running != nil {
		return running, func() error { return nil }, nil
	}
	cfg := *w.config
	cfg.Log.Level = max(cfg.Log.Level, slog.LevelWarn)
	c, err := newComponents(&cfg, newLog(w.std.err, cfg.Log), observer{})
	if err != nil {
		return nil, nil, err
	}
	if c.kept == nil {
		return nil, nil, errors.Join(usage(errors.New("no records are kept that a change could decide otherwise, because "+
			"audit.store is none")), c.close())
	}
	return ownFolder{c}, c.close, nil
}

// running returns the running proxy, or nil if none runs and none is named.
func (w *hostWatch) running(ctx context.Context) (watchedFiles, error) {
	i, err := findInstance(w.config, w.adminURL)
	if err == nil {
		err = i.call(ctx, http.MethodGet, "/status", nil, nil, new(json.RawMessage))
	}
	if exit := (*exitError)(nil); errors.As(err, &exit) && exit.code == exitNotRunning && w.adminURL == "" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return runningFiles{i}, nil
}

// runningFiles are the files of a running proxy.
type runningFiles struct{ *instance }

func (f runningFiles) refresh(ctx context.Context, name string) (list admin.FileList, err error) {
	err = f.call(ctx, http.MethodPost, "/cache/refresh", url.Values{"host": {name}}, nil, &list)
	return list, err
}

func (f runningFiles) changes(ctx context.Context, name string, since time.Time) (effects []*proof.Effect, err error) {
	query := url.Values{"host": {name}, "since": {since.UTC().Format(time.RFC3339Nano)}}
	err = f.call(ctx, http.MethodGet, "/cache/changes", query, nil, &effects)
	return effects, err
}

// ownFolder are the files in the data folder, while no proxy runs.
type ownFolder struct{ *components }

func (f ownFolder) cache() admin.Cache { return admin.Cache{Files: f.files, History: f.history()} }

func (f ownFolder) refresh(ctx context.Context, name string) (admin.FileList, error) {
	list, err := f.cache().Refresh(ctx, name)
	return list, exitStatusOf(err)
}

func (f ownFolder) changes(ctx context.Context, name string, since time.Time) ([]*proof.Effect, error) {
	effects, err := f.cache().Effects(ctx, f.kept, name, since)
	return effects, exitStatusOf(err)
}

// exitStatusOf gives err the exit status that it has as an answer of the API: see instance.refusal.
func exitStatusOf(err error) error {
	switch {
	case err == nil:
		return nil
	case admin.StatusOf(err) == http.StatusBadRequest:
		return usage(err)
	case admin.StatusOf(err) == http.StatusInternalServerError:
		return err
	}
	return &exitError{exitNo, err}
}

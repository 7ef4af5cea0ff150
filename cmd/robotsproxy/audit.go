package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/store"
)

func newAudit(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "The records of all requests: which were refused or delayed, and why",
		Long: `Answer questions about the records of all requests. Without a subcommand, audit prints the summary of the last day.

The commands read the records in the data folder, whether or not robotsproxy runs. With --data-dir they read a copy of
that folder, on any machine.`,
		Example: `  robotsproxy audit                                    the summary of the last day
  robotsproxy audit list --decision deny --since 1h    the requests that were refused in the last hour
  robotsproxy audit explain 0hq3v5k2e0s00              one request, with the robots.txt that decided`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage(unknownCommand(cmd, args[0]))
			}
			return nil
		},
	}
	summarize(newAuditCommand(cmd, std), "24h")
	cmd.AddCommand(newAuditList(std), newAuditTop(std), newAuditSummary(std), newAuditExplain(std), newAuditWouldDeny(std), newAuditUsage(std))
	cmd.AddCommand(newAuditSpacing(std), newAuditReplay(std), newAuditChanges(std), newAuditDossier(std), newAuditExport(std))
	cmd.AddCommand(newAuditSeal(std), newAuditVerify(std), newAuditPrune(std), newAuditErase(std))
	return cmd
}

// auditCommand is a command that reads the records. Its flags name their place, select some, and choose the output.
type auditCommand struct {
	*cobra.Command
	std      stdio
	settings *configSource
	config   *config.Config // once the records are open
	filter   audit.Filter   // of the flags, after the checks
	checks   []func() error // of the flags, before the records are opened
	format   string
	utc      bool
	quiet    bool
}

func newAuditCommand(cmd *cobra.Command, std stdio) *auditCommand {
	c := &auditCommand{Command: cmd, std: std, settings: configFlags(cmd)}
	f := cmd.Flags()
	f.Lookup("data-dir").Usage = "read the records in this `DIR`, the data folder or a copy of it (default: that of\nthe configuration)"
	f.BoolVar(&c.utc, "utc", false, "print and read times in UTC, not in local time")
	f.BoolVarP(&c.quiet, "quiet", "q", false, "print only data and errors")
	return c
}

// exclusive lets at most one of the flags be set.
func (c *auditCommand) exclusive(names ...string) {
	c.checks = append(c.checks, func() error {
		var set []string
		for _, name := range names {
			if c.Flags().Changed(name) {
				set = append(set, "--"+name)
			}
		}
		if len(set) > 1 {
			return fmt.Errorf("%s exclude each other: write one of them", strings.Join(set, " and "))
		}
		return nil
	})
}

// say writes a message for people.
func (c *auditCommand) say(format string, args ...any) {
	if !c.quiet {
		fmt.Fprintf(c.std.err, format+"\n", args...)
	}
}

// answer sets c's RunE. It opens the records for ask, and cancels its context at an interrupt.
func (c *auditCommand) answer(ask func(ctx context.Context, records audit.Reader, args []string) error) {
	c.RunE = func(cmd *cobra.Command, args []string) error {
		for _, check := range c.checks {
			if err := check(); err != nil {
				return usage(err)
			}
		}
		return interruptible(cmd.Context(), func(ctx context.Context) error {
			records, err := c.open()
			if err != nil {
				return err
			}
			return errors.Join(ask(ctx, records, args), records.Close())
		})
	}
}

// interruptible calls work and cancels its context at an interrupt.
func interruptible(ctx context.Context, work func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := work(ctx)
	switch {
	case ctx.Err() != nil:
		return &exitError{code: exitInterrupted}
	case errors.Is(err, syscall.EPIPE): // its reader, such as head, has enough
		return &exitError{code: exitPipe}
	}
	return err
}

// work sets c's RunE to a command that opens the records with sealedRecords.
func (c *auditCommand) work(do func(ctx context.Context, cfg *config.Config) error) {
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		for _, check := range c.checks {
			if err := check(); err != nil {
				return usage(err)
			}
		}
		cfg, err := c.settings.loadFor(cmd, c.std, "data_dir", "audit")
		if err != nil {
			return err
		}
		return interruptible(cmd.Context(), func(ctx context.Context) error { return do(ctx, cfg) })
	}
}

// recordStore are records that are open for reading.
type recordStore interface {
	audit.Reader
	io.Closer
}

// open opens the records for reading.
func (c *auditCommand) open() (recordStore, error) {
	cfg, err := c.settings.loadFor(c.Command, c.std, "data_dir", "audit")
	if err != nil {
		return nil, err
	}
	c.config = cfg
	return openRecords(cfg)
}

// openRecords opens the records of the configuration for reading.
func openRecords(cfg *config.Config) (recordStore, error) {
	return openDatabase(cfg, true)
}

// openDatabase opens the database of the records. It makes no file and no tables.
func openDatabase(cfg *config.Config, readOnly bool) (*store.Records, error) {
	o := store.RecordsOptions{Path: recordStoreFile(cfg), ReadOnly: readOnly}
	if cfg.Audit.Store == config.AuditPostgres {
		dsn, err := readDSN(cfg)
		if err != nil {
			return nil, err
		}
		records, err := store.OpenPostgresRecords(context.Background(), dsn, o)
		return records, unreadable(err)
	}
	if err := checkRecords(cfg); err != nil {
		return nil, err
	}
	records, err := store.OpenRecords(o)
	return records, unreadable(err)
}

// unreadable gives err the exit status of usage errors: 1 is an answer.
func unreadable(err error) error {
	if err == nil {
		return nil
	}
	return usage(err)
}

// checkRecords reports that a data folder has no records.
func checkRecords(cfg *config.Config) error {
	path := recordStoreFile(cfg)
	_, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && cfg.Audit.Store == config.AuditNone:
		return usage(errors.New("no records are kept that can be questioned, because audit.store is none"))
	case errors.Is(err, fs.ErrNotExist):
		return usage(fmt.Errorf("%s has no records (%s is missing).\n  robotsproxy serve writes them there;"+
			" for another data folder or a copy of one: --data-dir DIR", cfg.DataDir, filepath.Base(path)))
	}
	return nil
}

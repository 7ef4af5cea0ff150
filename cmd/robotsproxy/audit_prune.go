package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/auditquery"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
	"github.com/robotsproxy/robotsproxy/store"
)

func newAuditPrune(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "prune (--before TIME | --older-than DURATION | --max-size SIZE)",
		Short: "Remove the oldest records, with the robots.txt files that only they rest on",
		Long: `Remove the oldest records, with their counts and the robots.txt files and policies that only they rest on. It works in
small steps, beside a running robotsproxy. Whole hours go: --before 14:30 removes what arrived before 14:00.

Seals keep that the records were pruned. JSON lines are not touched.`,
		Example: `  robotsproxy audit prune --older-than 30d --dry-run
  robotsproxy audit prune --max-size 1GiB`,
		Args: noArgs,
	}
	c := newAuditCommand(cmd, std)
	var before, age, size string
	o := store.PruneOptions{Why: "audit prune"}
	f := cmd.Flags()
	f.StringVar(&before, "before", "", "remove records that arrived before this `TIME`: 24h or 30d ago, today, 2026-11-22, RFC 3339")
	f.StringVar(&age, "older-than", "", "remove records that arrived longer than this `DURATION` ago, such as 30d")
	f.StringVar(&size, "max-size", "", "remove the oldest records until the file is not larger than this `SIZE`, such as 1GiB")
	f.BoolVar(&o.DryRun, "dry-run", false, "remove nothing, and print how many records would go")
	c.checks = append(c.checks, func() (err error) {
		now := time.Now().In(c.zone())
		switch {
		case before == "" && age == "" && size == "":
			return errors.New("prune needs --before, --older-than or --max-size")
		case before != "" && age != "":
			return errors.New("--before and --older-than exclude each other")
		case o.DryRun && size != "":
			return errors.New("--dry-run does not know how many records --max-size would remove; use it with --older-than")
		case before != "":
			o.Before, err = auditquery.Moment("--before", before, now)
		case age != "":
			var d time.Duration
			d, err = config.ParseDuration(age)
			o.Before = now.Add(-d)
		}
		if err == nil && size != "" {
			var limit config.Size
			limit, err = config.ParseSize(size)
			o.MaxSize = int64(limit)
		}
		return err
	})
	c.work(func(ctx context.Context, cfg *config.Config) error { return c.prune(ctx, cfg, o) })
	return cmd
}

func (c *auditCommand) prune(ctx context.Context, cfg *config.Config, o store.PruneOptions) (err error) {
	records, err := openToWrite(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, records.Close()) }()
	p, err := records.Prune(ctx, o)
	if err != nil {
		return err
	}
	verb := "Pruned"
	if o.DryRun {
		verb = "Would prune"
	}
	text := fmt.Sprintf("%s %s records", verb, auditview.Number(p.Records))
	if !p.Before.IsZero() {
		text += " that arrived before " + auditview.Moment(p.Before, c.zone())
	}
	_, err = fmt.Fprintln(c.std.out, text+".")
	return err
}

func newAuditErase(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "erase --client NAME --reason TEXT",
		Short: "Erase the records of one client",
		Long: `Erase the records of a client, its part of the counts, and its name, addresses, tags and User-Agents. The file is then
rewritten, so that no copy of an erased byte is left in it; writers wait meanwhile. A policy text that names the client
stays if records of other clients rest on it; the command says how many there are.

The seals stay verifiable: the hashes of the records stay, and the time, the reason, the operator and the number of records
are kept and sealed. The reason must not name the client. JSON lines, exports, logs and backups are not touched.`,
		Example: `  robotsproxy audit erase --client news --dry-run
  robotsproxy audit erase --client local --client-addr 192.0.2.7 --until 2026-06-01 --reason "request 4711"`,
		Args: noArgs,
	}
	c := newAuditCommand(cmd, std)
	var o store.EraseOptions
	var since, until string
	var dry bool
	f := cmd.Flags()
	f.StringVar(&o.Client, "client", "", "erase the records of this client, by its `NAME`")
	f.StringVar(&o.ClientAddr, "client-addr", "", "erase only requests from this `ADDRESS`, as recorded, with or without its port")
	f.StringVar(&since, "since", "", "erase only requests from this `TIME` on: 24h or 30d ago, today, 2026-11-22, RFC 3339")
	f.StringVar(&until, "until", "", "erase only requests before this `TIME`")
	f.StringVar(&o.Reason, "reason", "", "why, as `TEXT` that is kept and sealed")
	f.StringVar(&o.By, "by", "", "who erases, as `NAME` that is kept and sealed (default: the user)")
	f.BoolVar(&o.Keep, "no-rewrite", false, "do not rewrite the file: erased bytes stay in unused parts of it for a while")
	f.BoolVar(&dry, "dry-run", false, "erase nothing, and print how many records would go")
	c.checks = append(c.checks, func() (err error) {
		if o.Client == "" && o.ClientAddr == "" {
			return errors.New("erase needs --client or --client-addr: whose records?")
		}
		if o.Reason == "" && !dry {
			return errors.New("erase needs --reason \"…\": it is kept and sealed in place of the records")
		}
		if host, _, err := net.SplitHostPort(o.ClientAddr); err == nil {
			o.ClientAddr = host
		}
		for _, name := range []string{o.Client, o.ClientAddr} {
			if name != "" && slices.Contains(strings.FieldsFunc(strings.ToLower(o.Reason), notOfName), strings.ToLower(name)) {
				return fmt.Errorf("--reason %q names the client, whose name is erased: it is kept and sealed", o.Reason)
			}
		}
		now := time.Now().In(c.zone())
		if o.Since, err = auditquery.Moment("--since", since, now); err != nil {
			return err
		}
		o.Until, err = auditquery.Moment("--until", until, now)
		o.By = operator(o.By)
		return err
	})
	c.work(func(ctx context.Context, cfg *config.Config) error { return c.erase(ctx, cfg, o, dry) })
	return cmd
}

// notOfName reports whether r ends a name of a client, or an address, in a text.
func notOfName(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_.:", r)
}

func (c *auditCommand) erase(ctx context.Context, cfg *config.Config, o store.EraseOptions, dry bool) (err error) {
	records, err := openToWrite(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, records.Close()) }()
	if dry {
		ids, err := records.Erasable(ctx, o)
		if err == nil {
			_, err = fmt.Fprintf(c.std.out, "Would erase %s records.\n", auditview.Number(int64(len(ids))))
		}
		return err
	}
	e, err := records.Erase(ctx, o)
	if err != nil {
		return err
	}
	if e.Records == 0 {
		return &exitError{exitUnknown, errors.New("no such records are kept")}
	}
	fmt.Fprintf(c.std.out, "Erased %s records. The next robotsproxy audit seal confirms it as erasure %d.\n",
		auditview.Number(int64(e.Records)), e.Number)
	if e.Policies > 0 {
		c.say("robotsproxy: policy texts that name the client stay, since records of other clients rest on them: %s."+
			" Each goes with the last of these records; new ones name the clients of the configuration.", auditview.Number(int64(e.Policies)))
	}
	c.warnOfLines(cfg)
	return nil
}

// warnOfLines names the files of JSON lines, which have the erased records too.
func (c *auditCommand) warnOfLines(cfg *config.Config) {
	if cfg.Audit.JSONL == config.NoJSONL || cfg.Audit.JSONL == "-" {
		return
	}
	files, _ := filepath.Glob(recordsFile(cfg) + "*")
	for _, name := range files {
		c.say("robotsproxy: %s is not touched: it may still have the records as JSON lines", name)
	}
}

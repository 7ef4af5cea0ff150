package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/audit/seal"
	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
	"github.com/robotsproxy/robotsproxy/internal/durable"
	"github.com/robotsproxy/robotsproxy/store"
)

func newAuditSeal(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "seal",
		Short: "Seal the records, so that later changes show, and print the signed checkpoint",
		Long: `Seal the records that have ended: add their hashes to a Merkle tree and sign its root. The signed checkpoint is kept with
the records and printed. Give it away, to the auditor or into the log of another system: then records that are replaced
and sealed again show too, even with the same key.

The key is seal.key in the data folder, made at the first use. audit.seal_every seals regularly while robotsproxy runs.`,
		Example: `  robotsproxy audit seal -o checkpoint-2026-11.txt
  robotsproxy audit seal --public-key > seal.pub`,
		Args: noArgs,
	}
	c := newAuditCommand(cmd, std)
	var out, name string
	var public bool
	var o seal.Options
	f := cmd.Flags()
	f.StringVarP(&out, "output", "o", "", "write the checkpoint to this `FILE` instead of stdout")
	f.BoolVar(&public, "public-key", false, "print the public key, for robotsproxy audit verify --key, and seal nothing")
	f.StringVar(&name, "name", "", "give a new key this `NAME`, the first line of its checkpoints (default: robotsproxy/ and\nthe beginning of its hash)")
	f.BoolVar(&o.Late, "late", false, "also seal records that were written more than an hour after their arrival")
	f.BoolVar(&o.Rotate, "new-key", false, "continue with another key than the one of the last checkpoint")
	c.work(func(ctx context.Context, cfg *config.Config) error {
		key, made, err := seal.OpenKey(cfg.DataDir, name)
		if err != nil {
			return err
		}
		if made {
			c.say("robotsproxy: %s is new. Give its public key to auditors: robotsproxy audit seal --public-key",
				filepath.Join(cfg.DataDir, seal.KeyFile))
		}
		if public {
			_, err := fmt.Fprintln(std.out, key.Public())
			return err
		}
		return c.seal(ctx, cfg, key, o, out)
	})
	return cmd
}

func (c *auditCommand) seal(ctx context.Context, cfg *config.Config, key *seal.Key, o seal.Options, out string) (err error) {
	records, err := openToWrite(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, records.Close()) }()
	line := c.progressLine("sealing", "hashes")
	o.Progress = line.update
	checkpoint, err := seal.Seal(ctx, records, key, o)
	line.clear()
	switch {
	case err != nil:
		return err
	case checkpoint == nil:
		return &exitError{exitUnknown, errors.New("there are no records to seal")}
	}
	for _, line := range auditview.Prunes(checkpoint.Prunes, c.zone()) {
		c.say("robotsproxy: the checkpoint confirms a pruning: %s", line)
	}
	if out != "" {
		c.say("robotsproxy: %s hashes are sealed, of what ended before %s", auditview.Number(checkpoint.Size),
			auditview.Moment(checkpoint.Ended, c.zone()))
		return durable.Replace(out, []byte(checkpoint.Note), 0o644)
	}
	_, err = fmt.Fprint(c.std.out, checkpoint.Note)
	return err
}

func newAuditVerify(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare the records with their seals, and name what was changed or removed",
		Long: `Compare all records with their hashes, the hashes with the signed checkpoints, and stored robots.txt files and policies
with their SHA-256. It needs no running robotsproxy and no network: copy the data folder and name it with --data-dir.

The exit status is 0 if all is sound, 1 if not, and 4 if nothing is sealed.`,
		Example: `  robotsproxy audit verify --key robotsproxy/3f9a0c21+7d1f3a60+AX...
  robotsproxy audit verify --data-dir copy --key seal.pub --checkpoint checkpoint-2026-11.txt`,
		Args: noArgs,
	}
	c := newAuditCommand(cmd, std)
	c.addFormatFlag()
	var keys, checkpoints []string
	f := cmd.Flags()
	f.StringArrayVar(&keys, "key", nil, "trust this public `KEY`, or the key in this file, and no other (default: seal.pub in the\ndata folder)")
	f.StringArrayVar(&checkpoints, "checkpoint", nil, "compare also with the checkpoint in this `FILE`, which was given away")
	c.work(func(ctx context.Context, cfg *config.Config) error {
		o, err := verifyOptions(cfg.DataDir, keys, checkpoints)
		if errors.Is(err, errNoSeal) {
			return &exitError{exitUnknown, err}
		}
		if err != nil {
			return err
		}
		return c.verify(ctx, cfg, o, len(keys) == 0)
	})
	return cmd
}

// errNoSeal reports a folder without a public key, in which nothing can be sealed.
var errNoSeal = errors.New("nothing is sealed; seal the records with: robotsproxy audit seal")

func verifyOptions(dir string, keys, checkpoints []string) (o seal.VerifyOptions, err error) {
	if len(keys) == 0 {
		keys = []string{filepath.Join(dir, seal.PublicFile)}
		if _, err := os.Stat(keys[0]); errors.Is(err, os.ErrNotExist) {
			return o, errNoSeal
		}
	}
	for _, given := range keys {
		key, err := seal.OpenVerifier(given)
		if err != nil {
			return o, usage(err)
		}
		o.Keys = append(o.Keys, key)
	}
	for _, path := range checkpoints {
		text, err := os.ReadFile(path)
		if err != nil {
			return o, usage(fmt.Errorf("reading the checkpoint: %w", err))
		}
		o.Checkpoints = append(o.Checkpoints, string(text))
	}
	return o, nil
}

func (c *auditCommand) verify(ctx context.Context, cfg *config.Config, o seal.VerifyOptions, ownKey bool) error {
	records, err := openSealed(cfg)
	if err != nil {
		return err
	}
	line := c.progressLine("comparing", "records")
	o.Progress = line.update
	report, err := seal.Verify(ctx, records, o)
	line.clear()
	err = errors.Join(err, records.Close())
	switch {
	case errors.Is(err, seal.ErrNothingSealed):
		return &exitError{exitUnknown, errNoSeal}
	case err != nil:
		return err
	}
	if err := auditview.Verification(c.std.out, report, c.options()); err != nil {
		return err
	}
	if ownKey {
		c.say("robotsproxy: the key is that in the data folder, which a person with access to the folder can replace, and sign with.\n" +
			"  To prove more, compare with a key and a checkpoint that were given away: --key KEY --checkpoint FILE")
	}
	if !report.Sound() {
		return &exitError{code: exitNo}
	}
	return nil
}

// openToWrite opens the records that openRecords reads, also to change them. It makes no file.
func openToWrite(cfg *config.Config) (*store.Records, error) { return openDatabase(cfg, false) }

// sealedRecords are records with their seals.
type sealedRecords interface {
	seal.Log
	io.Closer
}

// openSealed opens the records for reading, with their seals.
func openSealed(cfg *config.Config) (sealedRecords, error) {
	records, err := openRecords(cfg)
	if err != nil {
		return nil, err
	}
	return records.(sealedRecords), nil
}

// progressLine is a line on a terminal about work that takes longer than two seconds.
type progressLine struct {
	c          *auditCommand
	verb, noun string
	begin      time.Time
	shown      bool
}

func (c *auditCommand) progressLine(verb, noun string) *progressLine {
	return &progressLine{c: c, verb: verb, noun: noun, begin: time.Now()}
}

func (l *progressLine) update(n int64) {
	if l.c.quiet || !isTerminal(l.c.std.err) || time.Since(l.begin) < 2*time.Second {
		return
	}
	l.shown = true
	fmt.Fprintf(l.c.std.err, "\r%s: %s %s", l.verb, auditview.Number(n), l.noun)
}

// clear removes the line.
func (l *progressLine) clear() {
	if l.shown {
		fmt.Fprint(l.c.std.err, "\r\x1b[K")
	}
}

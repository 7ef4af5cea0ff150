package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/export"
	"github.com/robotsproxy/robotsproxy/internal/auditquery"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
)

func newAuditExport(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the records for other programs: CSV, JSON lines, Parquet, Squid",
		Long: `Write the records for other programs, the oldest first: to the standard output, or with -o to a file, which is complete
or absent. csv, jsonl and parquet have all fields; squid is the native format of Squid's access.log, for its reports.`,
		Example: `  robotsproxy audit export --since 30d -o records.csv
  robotsproxy audit export --format parquet --host '*.example' -o records.parquet
  robotsproxy audit export --format squid | calamaris -a`,
		Args: noArgs,
	}
	c := newAuditCommand(cmd, std)
	c.addFilterFlags("")
	var out outputFile
	out.addFlags(c, "")
	format := string(export.CSV)
	cmd.Flags().StringVar(&format, "format", format, "write as `FORMAT`: "+auditquery.List(export.Formats))
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(words(export.Formats), cobra.ShellCompDirectiveNoFileComp))
	c.checks = append(c.checks, func() error {
		if _, err := auditquery.Listed("--format", []string{format}, export.Formats); err != nil {
			return err
		}
		if format == string(export.Parquet) && out.path == "" && isTerminal(std.out) {
			return errors.New("--format parquet is not for a terminal; write a file with -o FILE, or to a pipe")
		}
		return nil
	})
	c.answer(func(ctx context.Context, records audit.Reader, _ []string) error {
		var n int64
		err := out.write(std.out, func(w io.Writer) (err error) {
			n, err = export.Write(w, export.Format(format), records.Records(ctx, c.filter))
			return err
		})
		if err == nil && out.path != "" {
			c.say("%s: %s requests.", out.path, auditview.Number(n))
		}
		return err
	})
	return cmd
}

// outputFile is the file that a command writes.
type outputFile struct {
	path  string // empty: the standard output
	force bool
}

// addFlags adds -o, with its default, and --force.
func (o *outputFile) addFlags(c *auditCommand, name string) {
	where := " (default: the standard output)"
	if name != "" {
		where = " (default: " + name + "); -: the standard output"
	}
	c.Flags().StringVarP(&o.path, "output", "o", "", "write to this `FILE`"+where)
	c.Flags().BoolVar(&o.force, "force", false, "replace FILE if it exists")
}

// write has f write to the file, or to out.
func (o *outputFile) write(out io.Writer, f func(io.Writer) error) error {
	if o.path == "" || o.path == "-" {
		return f(out)
	}
	err := export.File(o.path, o.force, f)
	if errors.Is(err, fs.ErrExist) {
		return usage(fmt.Errorf("%s exists; --force replaces it", o.path))
	}
	return err
}

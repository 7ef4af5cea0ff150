package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
)

func newAuditUsage(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "The preferences of sites about the use of their content, and the fetches for each purpose",
		Long: `List for each host the preferences that it stated about the use of its content, and for each purpose the requests: those
that fetched content, those of them that fetched it although the preferences do not permit the purpose, and those that
were refused, of them by a preference. As a table it lists 100 rows unless --limit says otherwise; in the other formats all of them.`,
		Example: `  robotsproxy audit usage --since 30d
  robotsproxy audit usage --client lab --format csv > usage.csv`,
		Args: noArgs,
	}
	c := newAuditCommand(cmd, std)
	c.addFilterFlags("")
	c.addFormatFlag()
	c.addLimitFlag("n", listedRows)
	c.answer(func(ctx context.Context, records audit.Reader, _ []string) error {
		f := c.filter
		if c.format != string(auditview.Table) && !cmd.Flags().Changed("limit") {
			f.Limit = 0
		}
		return c.count(auditview.Uses(ctx, std.out, c.options(), records, f))
	})
	return cmd
}

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/proof"
	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
)

func newAuditSpacing(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "spacing [HOST]",
		Short: "Prove that the gaps between requests were as long as required",
		Long: `Compute the gaps between all requests that were sent from the times in their records, and compare each with the Delay
that its record requires. Requests of all clients and instances count, also those that the flags do not select. Shorter
gaps with a cause that the configuration allows are counted apart.

The exit status is 1 if a gap was shorter than required or a record contradicts the times, and 4 if no gap was required.`,
		Example: `  robotsproxy audit spacing a.example
  robotsproxy audit spacing --since 30d --format csv`,
	}
	c := newAuditCommand(cmd, std)
	c.addFilterFlags("")
	c.addHostArgument(false)
	c.addFormatFlag()
	c.answer(func(ctx context.Context, records audit.Reader, _ []string) error {
		report, err := proof.Spacing(ctx, records, c.filter)
		if err != nil {
			return err
		}
		if err := auditview.Spacing(std.out, c.options(), report, c.filter.Host); err != nil {
			return err
		}
		switch {
		case !report.OK():
			return &exitError{code: exitNo}
		case report.Gaps == 0:
			return &exitError{code: exitUnknown}
		}
		return nil
	})
	return cmd
}

// addHostArgument makes c take a host as its argument, in place of --host.
func (c *auditCommand) addHostArgument(required bool) {
	var host string
	c.Args = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 1 && cmd.Flags().Changed("host"):
			return usage(fmt.Errorf("%s takes HOST or --host, not both", cmd.CommandPath()))
		case len(args) == 1 && args[0] == "":
			return usage(fmt.Errorf("%s got an empty HOST: write one", cmd.CommandPath()))
		case len(args) == 1:
			host = args[0]
		case len(args) > 1:
			return usage(fmt.Errorf("%s takes one HOST, not %d", cmd.CommandPath(), len(args)))
		case required && !cmd.Flags().Changed("host"):
			return usage(fmt.Errorf("%s needs a HOST; robotsproxy audit top hosts prints them", cmd.CommandPath()))
		}
		return nil
	}
	c.checks = append(c.checks, func() (err error) {
		if host != "" {
			c.filter.Host, err = config.ParsePattern(host)
		}
		return err
	})
}

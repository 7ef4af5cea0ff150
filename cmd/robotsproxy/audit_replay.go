package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/proof"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
)

func newAuditReplay(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Decide all requests again, and compare the results with the records",
		Long: `Decide every recorded request once more, by the robots.txt and the policy that were in force and are kept with the
records, and compare the result with the record: the decision, its reason, the rule and its group, the exemption, the
intervention and the Delay. Records that cannot be replayed are counted by cause.

The exit status is 1 if a decision comes out otherwise, and 4 if no record could be replayed.`,
		Example: `  robotsproxy audit replay --since 30d
  robotsproxy audit replay --host a.example --format csv`,
		Args: noArgs,
	}
	c := newAuditCommand(cmd, std)
	c.addFilterFlags("")
	c.addFormatFlag()
	c.answer(func(ctx context.Context, records audit.Reader, _ []string) error {
		line := c.progressLine("replaying", "records")
		report, err := proof.Replay(ctx, records, c.filter, proof.ReplayOptions{Progress: line.update})
		line.clear()
		if err != nil {
			return err
		}
		if err := auditview.Replay(std.out, c.options(), report); err != nil {
			return err
		}
		switch {
		case !report.OK():
			return &exitError{code: exitNo}
		case report.Replayed == 0:
			return &exitError{code: exitUnknown}
		}
		return nil
	})
	return cmd
}

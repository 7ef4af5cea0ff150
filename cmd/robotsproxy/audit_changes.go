package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/proof"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
)

func newAuditChanges(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "changes HOST",
		Short: "The versions of a host's robots.txt, and what each change decides otherwise",
		Long: `List the versions of a host's robots.txt, the newest first, with the lines that changed. Beside each change: how many of the
recorded requests it decides otherwise than the version before, without exemptions, interventions and modes. The flags
select requests, not versions.`,
		Example: `  robotsproxy audit changes a.example
  robotsproxy audit changes a.example --since 30d --agent NewsBot --format json`,
	}
	c := newAuditCommand(cmd, std)
	c.addFilterFlags("")
	c.addHostArgument(true)
	c.addFormatFlag()
	c.checks = append(c.checks, func() error {
		if strings.HasPrefix(c.filter.Host, "*") {
			return errors.New("audit changes needs one host, not a pattern")
		}
		return nil
	})
	c.answer(func(ctx context.Context, records audit.Reader, _ []string) error {
		changes, err := proof.Changes(ctx, records, c.filter)
		if err != nil {
			return err
		}
		if len(changes) == 0 {
			c.say("No robots.txt of %s is kept.", c.filter.Host)
			return &exitError{code: exitUnknown}
		}
		return auditview.Changes(std.out, c.options(), changes)
	})
	return cmd
}

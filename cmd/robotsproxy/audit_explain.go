package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
)

func newAuditExplain(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain ID",
		Short: "One request: the decision, and the line of robots.txt that it rests on",
		Long: `Explain one request: the decision, the line of robots.txt that it rests on, and what was sent. The ID is that in the
field Robotsproxy-Request-Id of a response, in a refusal, and in audit list; its beginning suffices if it is the only one.`,
		Example: `  robotsproxy audit explain 0hq3v5k2e0s00
  robotsproxy audit explain 0hq3v5k2e0s00 --body > robots.txt`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(fmt.Errorf("%s needs one ID; robotsproxy audit list prints them", cmd.CommandPath()))
			}
			return nil
		},
	}
	c := newAuditCommand(cmd, std)
	c.addFormatFlag()
	var body, policy bool
	cmd.Flags().BoolVar(&body, "body", false, "print only the robots.txt that decided, byte by byte")
	cmd.Flags().BoolVar(&policy, "policy", false, "print only the policy that decided")
	c.exclusive("body", "policy", "format")
	c.answer(func(ctx context.Context, records audit.Reader, args []string) error {
		r, err := auditview.Find(ctx, records, args[0])
		if err != nil {
			return err
		}
		e, err := auditview.Explain(ctx, records, r, time.Now())
		switch {
		case err != nil:
			return err
		case body:
			return e.Body(std.out)
		case policy:
			return e.PolicyText(std.out)
		}
		return e.Write(std.out, c.options())
	})
	return cmd
}

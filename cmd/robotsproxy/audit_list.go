package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
)

// listedRows is the number of rows of a list for people.
const listedRows = 100

func newAuditList(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List requests, the newest first",
		Long: `List requests, the newest first. As a table it lists 100 unless --limit says otherwise; in the other formats all of them,
with all fields.

With --follow it lists the last ten requests, the newest last, and then each request at its end, until an interrupt.`,
		Example: `  robotsproxy audit list --decision deny,throttle --since 1h
  robotsproxy audit list --host '*.example' --path /private/ --format jsonl
  robotsproxy audit list --follow --client news`,
		Args: noArgs,
	}
	c := newAuditCommand(cmd, std)
	c.addFilterFlags("")
	c.addFormatFlag()
	c.addLimitFlag("n", listedRows)
	var oldest, newest, follow bool
	cmd.Flags().BoolVar(&oldest, "oldest", false, "list the oldest first")
	cmd.Flags().BoolVar(&newest, "newest", false, "list the newest first")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with new requests")
	c.exclusive("oldest", "newest", "follow")
	c.answer(func(ctx context.Context, records audit.Reader, _ []string) error {
		f := c.filter
		f.Newest = !oldest
		out := auditview.NewRecords(std.out, c.options())
		if follow {
			if !cmd.Flags().Changed("limit") {
				f.Limit = auditview.FollowedRows
			}
			return errors.Join(auditview.Follow(ctx, out, records, f), out.Close())
		}
		if c.format != string(auditview.Table) && !cmd.Flags().Changed("limit") {
			f.Limit = 0
		}
		return c.list(ctx, out, records, f)
	})
	return cmd
}

// list writes the records of f, and says if there are more.
func (c *auditCommand) list(ctx context.Context, out *auditview.Records, records audit.Reader, f audit.Filter) error {
	limit := f.Limit
	if limit > 0 {
		f.Limit++
	}
	n := 0
	for r, err := range records.Records(ctx, f) {
		if err != nil {
			return errors.Join(err, out.Close())
		}
		if n++; limit > 0 && n > limit {
			break
		}
		if err := out.Add(r); err != nil {
			return err
		}
	}
	if err := out.Close(); err != nil {
		return err
	}
	switch {
	case n == 0:
		c.say("No requests.")
	case limit > 0 && n > limit && !c.Flags().Changed("limit"):
		c.say("There are more than these %d; --limit 0 lists all.", limit)
	}
	return nil
}

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/auditquery"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
	"github.com/robotsproxy/robotsproxy/store"
)

func newAuditSummary(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "summary",
		Short: "Count requests, refusals and the time spent waiting",
		Long: `Count the requests of a time, those that were refused, and the time that they waited: for each crawler, or for each
combination of the properties in --by.`,
		Example: `  robotsproxy audit summary --since 30d
  robotsproxy audit summary --by client,host,rule --decision deny --format csv`,
		Args: noArgs,
	}
	summarize(newAuditCommand(cmd, std), "")
	return cmd
}

// summarize makes c the command summary. since is the default of --since.
func summarize(c *auditCommand, since string) {
	c.addFilterFlags(since)
	c.addFormatFlag()
	c.addLimitFlag("", 20)
	var by []string
	c.listFlag(&by, "by", "count for each combination of these `PROPERTIES`: "+auditquery.List(audit.Dimensions[:4])+",\n"+
		auditquery.List(audit.Dimensions[4:]), words(audit.Dimensions))
	var dimensions []audit.Dimension
	c.checks = append(c.checks, func() (err error) {
		dimensions, err = auditquery.Listed("--by", by, audit.Dimensions)
		return err
	})
	c.answer(func(ctx context.Context, records audit.Reader, _ []string) error {
		gaps, err := gapsOf(ctx, records)
		if err != nil {
			return err
		}
		return c.count(c.sums(records).Summarize(ctx, auditview.Summary{Filter: c.filter, By: dimensions, Gaps: gaps}))
	})
}

// gapsOf returns the times in which requests were not recorded.
func gapsOf(ctx context.Context, records audit.Reader) (gaps []auditview.Gap, err error) {
	kept, ok := records.(interface {
		Info(ctx context.Context) (store.Info, error)
	})
	if !ok {
		return nil, nil
	}
	info, err := kept.Info(ctx)
	for _, l := range info.Losses {
		gaps = append(gaps, auditview.Gap{Began: l.Began, Ended: l.Ended, Records: l.Records})
	}
	return gaps, err
}

// sums returns what shows counts of records.
func (c *auditCommand) sums(records audit.Reader) *auditview.Sums {
	return &auditview.Sums{Records: records, Options: c.options(), Out: c.std.out}
}

// count says if there are more rows than the usual number.
func (c *auditCommand) count(more bool, err error) error {
	if more && !c.Flags().Changed("limit") {
		c.say("There are more rows; --limit 0 prints all.")
	}
	return err
}

func newAuditTop(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top " + strings.Join(auditquery.Topics, "|"),
		Short: "The hosts, paths, clients, agents, rules or reasons with the most requests",
		Long: `List the hosts, paths, clients, agents, rules or reasons with the most requests. Rules are those that refused requests,
or would have in mode enforce; --decision selects others.`,
		Example: `  robotsproxy audit top hosts
  robotsproxy audit top hosts --decision deny --since today
  robotsproxy audit top rules --client news -n 50`,
		ValidArgs: auditquery.Topics,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(fmt.Errorf("%s needs one of %s", cmd.CommandPath(), strings.Join(auditquery.Topics, ", ")))
			}
			if _, err := auditquery.Topic("audit top", args[0]); err != nil {
				return usage(err)
			}
			return nil
		},
	}
	c := newAuditCommand(cmd, std)
	c.addFilterFlags("")
	c.addFormatFlag()
	c.addLimitFlag("n", 10)
	c.answer(func(ctx context.Context, records audit.Reader, args []string) error {
		return c.count(c.sums(records).Top(ctx, c.filter, audit.Dimension(strings.TrimSuffix(args[0], "s"))))
	})
	return cmd
}

func newAuditWouldDeny(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "would-deny",
		Short: "What mode enforce would have blocked, by client and host",
		Long: `List what mode enforce would have blocked of the requests that were treated in mode report, by client and host. Read it
before you change the mode.`,
		Example: "  robotsproxy audit would-deny --since 30d --client news",
		Args:    noArgs,
	}
	c := newAuditCommand(cmd, std)
	c.addFilterFlags("")
	c.addFormatFlag()
	c.addLimitFlag("", 100)
	c.answer(func(ctx context.Context, records audit.Reader, _ []string) error {
		return c.count(c.sums(records).WouldDeny(ctx, c.filter))
	})
	return cmd
}

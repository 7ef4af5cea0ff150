package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/dossier"
)

func newAuditDossier(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dossier HOST",
		Short: "Write one zip that answers the complaint of a site's owner",
		Long: `Write one zip with all requests for a host, the robots.txt files that were in force, the proof of their spacing, and a page
that explains them to a reader who does not know robotsproxy. The page needs no network. The same records give the same
bytes.`,
		Example: `  robotsproxy audit dossier a.example --since 30d
  robotsproxy audit dossier a.example --since 2026-11-01 --until 2026-11-08 -o complaint-812.zip`,
	}
	c := newAuditCommand(cmd, std)
	var operator string
	c.addPeriodFlags("")
	c.addHostArgument(true)
	var out outputFile
	out.addFlags(c, "dossier-HOST.zip")
	cmd.Flags().StringVar(&operator, "operator", "", "name `TEXT` as the sender (default: identity.contact of the configuration)")
	c.checks = append(c.checks, func() error {
		if strings.HasPrefix(c.filter.Host, "*") {
			return errors.New("audit dossier needs one host, not a pattern")
		}
		return nil
	})
	c.answer(func(ctx context.Context, records audit.Reader, _ []string) error {
		if out.path == "" {
			out.path = "dossier-" + strings.ReplaceAll(c.filter.Host, ":", "_") + ".zip"
		}
		o := dossier.Options{Host: c.filter.Host, Since: c.filter.Since, Until: c.filter.Until, Operator: cmp.Or(operator, c.config.Identity.Contact)}
		err := out.write(std.out, func(w io.Writer) error { return dossier.Write(ctx, w, records, o) })
		if err == nil && out.path != "-" {
			c.say("%s: open its index.html in a browser.", out.path)
		}
		return err
	})
	return cmd
}

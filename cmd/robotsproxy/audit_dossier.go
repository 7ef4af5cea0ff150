package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/dossier"
	"github.com/robotsproxy/robotsproxy/audit/seal"
)

func newAuditDossier(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dossier HOST",
		Short: "Write one zip that answers the complaint of a site's owner",
		Long: `Write one zip with all requests for a host, the robots.txt files that were in force, the proof of their spacing, and a page
that explains them to a reader who does not know robotsproxy. The page needs no network. The same records give the same
bytes.

The exit status is 4, and no file is written, if no request for the host is recorded at any time.`,
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
		if err := checkKnown(ctx, records, c.filter.Host); err != nil {
			return err
		}
		if out.path == "" {
			out.path = "dossier-" + strings.ReplaceAll(c.filter.Host, ":", "_") + ".zip"
		}
		o := dossier.Options{Host: c.filter.Host, Since: c.filter.Since, Until: c.filter.Until, Operator: cmp.Or(operator, c.config.Identity.Contact)}
		gaps, err := gapsOf(ctx, records)
		if err != nil {
			return err
		}
		for _, g := range gaps {
			o.Gaps = append(o.Gaps, dossier.Gap(g))
		}
		if o.Extra, err = lastSeal(ctx, records); err != nil {
			return err
		}
		err = out.write(std.out, func(w io.Writer) error { return dossier.Write(ctx, w, records, o) })
		if err == nil && out.path != "-" {
			c.say("%s: open its index.html in a browser.", out.path)
		}
		return err
	})
	return cmd
}

// checkKnown returns an error if nothing is recorded about a host, at any time.
func checkKnown(ctx context.Context, records audit.Reader, host string) error {
	f := audit.Filter{Host: host, Vias: []audit.Via{audit.Plain, audit.Intercepted, audit.Tunnel, audit.Robots}, Limit: 1}
	for _, err := range records.Records(ctx, f) {
		return err
	}
	return &exitError{exitUnknown, fmt.Errorf("no request for %s is recorded, at any time: robotsproxy audit top hosts lists the hosts", host)}
}

// lastSeal returns the last checkpoint of the records as a file of a dossier, if they are sealed.
func lastSeal(ctx context.Context, records audit.Reader) ([]dossier.Extra, error) {
	log, ok := records.(seal.Log)
	if !ok {
		return nil, nil
	}
	notes, err := log.Checkpoints(ctx)
	if err != nil || len(notes) == 0 {
		return nil, err
	}
	return []dossier.Extra{{
		Name: "seal.txt",
		About: "The last signed checkpoint of all records of the operator: the size and the root hash of a Merkle tree, and an Ed25519 " +
			"signature, as in golang.org/x/mod/sumdb/note. Whoever has it can find later whether a record was changed since, with the " +
			"records and robotsproxy audit verify.",
		Write: func(_ context.Context, w io.Writer) error {
			_, err := io.WriteString(w, notes[len(notes)-1])
			return err
		},
	}}, nil
}

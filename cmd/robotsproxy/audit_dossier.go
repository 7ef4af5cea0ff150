package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/dossier"
	"github.com/robotsproxy/robotsproxy/audit/seal"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
	"github.com/robotsproxy/robotsproxy/store"
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
		if o.Removals, err = removalsOf(ctx, records, c.filter); err != nil {
			return err
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
	removals, err := removalsOf(ctx, records, audit.Filter{})
	if err != nil {
		return err
	}
	text := fmt.Sprintf("no request for %s is recorded, at any time: robotsproxy audit top hosts lists the hosts", host)
	for _, r := range removals {
		text += "\n  on " + auditview.Moment(r.Time, nil) + " UTC, " + safetext.Text(r.About)
	}
	return &exitError{exitUnknown, errors.New(text)}
}

// removalsOf returns the erasures and prunes of records that arrived in the period of f.
func removalsOf(ctx context.Context, records audit.Reader, f audit.Filter) (removals []dossier.Removal, err error) {
	kept, ok := records.(*store.Records)
	if !ok {
		return nil, nil
	}
	for stored, err := range kept.Erasures(ctx, 0) {
		if err != nil {
			return nil, err
		}
		if r, touches, err := erasureIn(stored, f); err != nil {
			return nil, err
		} else if touches {
			removals = append(removals, r)
		}
	}
	info, err := kept.Info(ctx)
	if err != nil {
		return nil, err
	}
	return append(removals, prunesIn(info.Prunes, f)...), nil
}

// erasureIn returns an erasure, and whether its records arrived in the period of f.
func erasureIn(stored *seal.StoredErasure, f audit.Filter) (r dossier.Removal, touches bool, err error) {
	e, err := stored.Open()
	if err != nil {
		return r, false, err
	}
	for ids := range slices.Chunk(stored.IDs, 8) {
		at := audit.ID(binary.BigEndian.Uint64(ids)).Time()
		if !at.Before(f.Since) && (f.Until.IsZero() || at.Before(f.Until)) {
			r.Records++
		}
	}
	r.Time = e.Time
	r.About = fmt.Sprintf("the records of %s of one client that arrived in this period, for this host or for others, were erased (erasure %d: %s).",
		counted(r.Records, "request"), e.N, e.Reason)
	return r, r.Records > 0, nil
}

// prunesIn returns the prunes that reach into the period of f, one for each cause.
func prunesIn(prunes []store.Pruned, f audit.Filter) (removals []dossier.Removal) {
	var causes []string
	last, records := map[string]store.Pruned{}, map[string]int64{}
	for _, p := range prunes {
		if p.Records == 0 || !p.Before.After(f.Since) {
			continue
		}
		if _, known := last[p.Why]; !known {
			causes = append(causes, p.Why)
		}
		if !p.Before.Before(last[p.Why].Before) {
			last[p.Why] = p
		}
		records[p.Why] += p.Records
	}
	for _, why := range causes {
		p := last[why]
		removals = append(removals, dossier.Removal{Time: p.Time, Records: records[why], About: fmt.Sprintf(
			"the records of all requests that arrived before %s were pruned (%s): %s, of this host and of others.",
			p.Before.UTC().Format("2006-01-02 15:04:05 UTC"), why, counted(records[why], "record"))})
	}
	return removals
}

func counted(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return auditview.Number(n) + " " + noun + "s"
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

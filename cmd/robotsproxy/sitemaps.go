package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/internal/auditquery"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/rules"
)

func newSitemaps(std stdio) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "sitemaps HOST|URL",
		Short: "The sitemaps that a robots.txt names",
		Long: `List the Sitemap lines of a robots.txt, in the order of the file, each once. A HOST stands for https://HOST. The file is
fetched as check fetches it: you may ask about any host, so the guard on addresses does not apply.

The exit status is 1 if the file names no sitemap, and 4 if it could not be fetched.`,
		Example: "  robotsproxy sitemaps a.example\n  robotsproxy sitemaps http://a.example:8080 --format json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(errors.New("sitemaps needs one HOST or URL, such as a.example"))
			}
			return nil
		},
	}
	settings := configFlags(cmd)
	cmd.Flags().StringVar(&format, "format", string(auditview.Table), "print as `FORMAT`: "+auditquery.List(planFormats))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := auditquery.Listed("--format", []string{format}, planFormats); err != nil {
			return usage(err)
		}
		raw := args[0]
		if !strings.Contains(raw, "://") {
			raw = "https://" + raw
		}
		_, o, err := parseURL(raw)
		if err != nil {
			return usage(err)
		}
		cfg, err := settings.load(cmd, std)
		if err != nil {
			return err
		}
		return interruptible(cmd.Context(), func(ctx context.Context) error {
			ctx, stop := context.WithCancel(ctx)
			defer stop()
			lookUp, err := fromOrigin(ctx, cfg)
			if err != nil {
				return err
			}
			all, err := sitemaps(ctx, lookUp, o, cfg.Robots.Dialect)
			if err != nil {
				return err
			}
			options := auditview.Options{Format: auditview.Format(format), Width: columns(std.out), Colour: hasColour(std.out)}
			return showSitemaps(std, options, o, all)
		})
	}
	return cmd
}

// sitemaps returns the Sitemap lines of o's robots.txt. Of lines with one value it returns the first.
func sitemaps(
	ctx context.Context, lookUp func(context.Context, origin.Origin) (*robots.Snapshot, error), o origin.Origin, d rules.Dialect,
) (lines []rules.Field, err error) {
	snap, err := lookUp(ctx, o)
	if err == nil && snap.Availability == robots.Unreachable {
		err = errors.New(cause(snap))
	}
	if err != nil {
		return nil, &exitError{exitUnknown, fmt.Errorf("fetching %s/robots.txt: %w", o, plainError(err))}
	}
	seen := make(map[string]bool)
	for _, f := range snap.RulesFor(d).Fields("Sitemap", "Site-map") {
		if f.Value != "" && !seen[f.Value] {
			seen[f.Value] = true
			lines = append(lines, f)
		}
	}
	return lines, nil
}

func showSitemaps(std stdio, options auditview.Options, o origin.Origin, lines []rules.Field) error {
	p := auditview.NewPrinter(std.out, options, auditview.Column{Name: "line", Title: "line"}, auditview.Column{Name: "sitemap", Title: "sitemap"})
	for _, f := range lines {
		if err := p.Row(int64(f.Line), safetext.UTF8(f.Value)); err != nil {
			return err
		}
	}
	if err := p.Close(); err != nil {
		return err
	}
	if len(lines) == 0 {
		fmt.Fprintf(std.err, "robotsproxy: %s/robots.txt names no sitemap\n", o)
		return &exitError{code: exitNo}
	}
	return nil
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/rules"
)

func newLint(std stdio) *cobra.Command {
	var format, dialect string
	var text lintText
	cmd := &cobra.Command{
		Use:   "lint FILE|DIR|URL|-...",
		Short: "Find likely mistakes in a robots.txt",
		Long: `Find likely mistakes in robots.txt files: lines that are not understood, that have no effect, or that some
crawlers read differently. A DIR stands for all files in it. A URL selects the robots.txt of its origin. You may ask
about any host, so the guard on addresses does not apply.

The text has errors and warnings, each code once, with the lines of its other places; of several files, a summary by
code. JSON and SARIF have each place of each finding.

The exit status is 0 without an error (there may be warnings), 1 with an error, and 4 if a robots.txt could not be
fetched. Each finding has a code, which docs/lint.md explains.`,
		Example: "  robotsproxy lint robots.txt\n  robotsproxy lint --format sarif https://site.example > robots.sarif",
		Args:    cobra.ArbitraryArgs,
	}
	settings := configFlags(cmd)
	cmd.Flags().StringVar(&format, "format", "text", "print as `FORMAT`: text, json (one finding a line) or sarif (2.1.0)")
	cmd.Flags().BoolVar(&text.all, "all", false, "list each place, and the findings of severity info")
	cmd.Flags().BoolVar(&text.readings, "readings", false, "list also the differences of other dialects, reading-*")
	cmd.Flags().StringVar(&dialect, "dialect", "rfc9309", "report the differences of this `DIALECT`, as --readings does; rfc9309 reports those of all")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usage(errors.New("lint needs a file, a folder, a URL, or - for standard input: robotsproxy lint robots.txt"))
		}
		d, err := rules.ParseDialect(dialect)
		if err != nil {
			return usage(fmt.Errorf("--dialect: %w", err))
		}
		names, err := filesIn(args)
		if err != nil {
			return usage(err)
		}
		text.summary = len(names) > 1 || len(args) == 1 && names[0] != args[0]
		text.readings = text.readings || d != rules.DialectRFC9309
		show, ok := map[string]func(io.Writer, []linted) error{
			"text": text.show, "json": showFindingLines, "sarif": showSARIF,
		}[format]
		if !ok {
			return usage(fmt.Errorf("--format %q is none of text, json and sarif", format))
		}
		cfg, err := settings.load(cmd, std)
		if err != nil {
			return err
		}
		c := linter{std: std, cfg: cfg, dialect: d}
		ctx, stop := context.WithCancel(cmd.Context())
		defer stop()
		return c.all(ctx, names, show)
	}
	return cmd
}

// filesIn returns the arguments with the files of each folder in its place: those below it too, without hidden ones.
func filesIn(args []string) (names []string, err error) {
	for _, arg := range args {
		info, err := os.Stat(arg)
		if err != nil || !info.IsDir() { // such as a URL; a file that does not exist is reported with the others
			names = append(names, arg)
			continue
		}
		before := len(names)
		err = filepath.WalkDir(arg, func(path string, entry fs.DirEntry, err error) error {
			hidden := path != arg && strings.HasPrefix(entry.Name(), ".")
			switch {
			case err != nil:
				return err
			case hidden && entry.IsDir():
				return fs.SkipDir
			case !hidden && entry.Type().IsRegular():
				names = append(names, path)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("listing the files of %s: %w", arg, err)
		}
		if len(names) == before {
			return nil, fmt.Errorf("the folder %s has no files", arg)
		}
	}
	return names, nil
}

// linted is a file with its findings.
type linted struct {
	name     string // the argument, or the URL of the robots.txt
	findings []rules.Finding
}

// hasError reports whether a finding is an error.
func (l linted) hasError() bool {
	return slices.ContainsFunc(l.findings, func(f rules.Finding) bool { return f.Severity == rules.SeverityError })
}

// linter reads and checks files.
type linter struct {
	std     stdio
	cfg     *config.Config
	dialect rules.Dialect
	lookUp  func(context.Context, origin.Origin) (*robots.Snapshot, error) // nil before the first URL
}

// all shows the findings in all files. It returns the exit status 1 if one is an error, else 4 if a file could not be
// fetched.
func (c *linter) all(ctx context.Context, names []string, show func(io.Writer, []linted) error) error {
	var all []linted
	var wrong, unknown bool
	var unread error // reported after the findings in the other files
	for _, name := range names {
		one, err := c.one(ctx, name)
		if exit := (*exitError)(nil); errors.As(err, &exit) && exit.code == exitUnknown {
			fmt.Fprintf(c.std.err, "robotsproxy: %s\n", safetext.Text(err.Error()))
			unknown = true
			continue
		}
		if err != nil {
			unread = errors.Join(unread, err)
			continue
		}
		wrong = wrong || one.hasError()
		all = append(all, one)
	}
	if err := show(c.std.out, all); err != nil {
		return err
	}
	switch {
	case unread != nil:
		return usage(unread)
	case wrong:
		return &exitError{code: exitNo}
	case unknown:
		return &exitError{code: exitUnknown}
	}
	return nil
}

func (c *linter) one(ctx context.Context, name string) (linted, error) {
	var body []byte
	var err error
	switch {
	case name == "-":
		name = "stdin"
		body, err = io.ReadAll(c.std.in)
	case strings.HasPrefix(name, "http://"), strings.HasPrefix(name, "https://"):
		name, body, err = c.fetch(ctx, name)
		if err != nil {
			return linted{}, err
		}
	default:
		body, err = os.ReadFile(name)
	}
	if err != nil {
		return linted{}, usage(fmt.Errorf("reading the robots.txt: %w", err))
	}
	return linted{name, rules.Lint(body, rules.Options{Dialect: c.dialect})}, nil
}

// fetch returns the robots.txt of a URL's origin, and its URL.
func (c *linter) fetch(ctx context.Context, raw string) (name string, body []byte, err error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", nil, usage(err)
	}
	o, err := origin.FromURL(u)
	if err != nil {
		return "", nil, usage(fmt.Errorf("%q: %w", raw, err))
	}
	if c.lookUp == nil {
		whole := *c.cfg
		whole.Robots.MaxSize = 64 << 20 // to check also the part that crawlers do not read
		if c.lookUp, err = fromOrigin(ctx, &whole); err != nil {
			return "", nil, err
		}
	}
	name = o.String() + "/robots.txt"
	snap, err := c.lookUp(ctx, o)
	switch {
	case err != nil:
		return "", nil, &exitError{exitUnknown, fmt.Errorf("fetching %s: %w", name, plainError(err))}
	case snap.Availability != robots.Found && snap.Flags&robots.WebPage == 0:
		return "", nil, &exitError{exitUnknown, fmt.Errorf("fetching %s: %s", name, cause(snap))}
	}
	return name, snap.Body, nil
}

func showFindingLines(w io.Writer, all []linted) error {
	e := json.NewEncoder(safetext.JSONWriter(w))
	e.SetEscapeHTML(false)
	for _, file := range all {
		for _, f := range file.findings {
			line := struct {
				File string `json:"file"`
				rules.Finding
			}{file.name, f}
			if err := e.Encode(line); err != nil {
				return err
			}
		}
	}
	return nil
}

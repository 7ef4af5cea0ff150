package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/auditquery"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
	"github.com/robotsproxy/robotsproxy/internal/plan"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
	"github.com/robotsproxy/robotsproxy/policy"
)

// planFormats are the formats of plan and sitemaps.
var planFormats = []auditview.Format{auditview.Table, auditview.JSON, auditview.CSV}

// planFlags are the flags of plan.
type planFlags struct {
	agent, as, response, format string
	clients, limit              int
	estimate                    bool
}

func newPlan(std stdio) *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use:   "plan FILE|- [-A AGENT] [--clients N] [--estimate]",
		Short: "What becomes of the URLs of a list, and how long a crawl of them takes",
		Long: `Say before a crawl which of its URLs may be fetched, which lines refuse the others, which hosts cannot be reached, and
how long the crawl takes at the allowed pace. The list has one URL on each line; lines that are empty or begin with #
do not count. Lines that are no URLs are counted and reported, and the plan is made without them. A URL that is listed
twice counts twice.

Each robots.txt is fetched once, as the proxy fetches it: through the guard on addresses, and not if the data folder has
a fresh copy. It is kept there, so that the crawl does not ask again. --estimate uses the kept files alone, however old
they are, and sends nothing.

URLs are judged as mode enforce does, with the hosts, exemptions and interventions of the configuration and of the data
folder. --as judges them for one of clients.

The time of a host is its allowed URLs, each with the Delay and the time of a response (--response), or without a Delay
with that of a response divided by the requests that may be under way at once (max_concurrent, at most --clients).
Hosts are crawled at once, so the crawl takes as long as the slowest host, or as the connections need for all
responses, if that is longer. It takes longer than that if the crawler waits for one host while others are free, if
other crawlers visit the same hosts, or if hosts push back.

The exit status is 0 if a URL may be fetched, 1 if none may, and 4 if that cannot be told.`,
		Example: `  robotsproxy plan urls.txt -A NewsBot
  robotsproxy plan urls.txt -A NewsBot --clients 16 --format csv > plan.csv
  sort -u urls.txt | robotsproxy plan - --estimate`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(errors.New("plan needs one file of URLs, or - for standard input: robotsproxy plan urls.txt -A NewsBot"))
			}
			return nil
		},
	}
	settings := configFlags(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&f.agent, "agent", "A", "*", "product token or whole User-Agent of the crawler, as `AGENT`")
	flags.StringVar(&f.as, "as", "", "judge as for the client with this `NAME` in clients")
	flags.IntVar(&f.clients, "clients", 4, "the crawler has this `NUMBER` of connections")
	flags.StringVar(&f.response, "response", "500ms", "assume that a response takes this `TIME`")
	flags.StringVar(&f.format, "format", string(auditview.Table), "print as `FORMAT`: table, json or csv with all hosts")
	flags.IntVar(&f.limit, "limit", 10, "print at most this `NUMBER` of rows in each table; 0: all")
	flags.BoolVar(&f.estimate, "estimate", false, "use the robots.txt files in the data folder alone, and send nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		pace, err := f.check()
		if err != nil {
			return usage(err)
		}
		cfg, err := settings.load(cmd, std)
		if err != nil {
			return err
		}
		p := &planner{std: std, cfg: cfg, list: args[0], pace: paceOf(cfg, pace)}
		if p.request, err = f.request(cfg); err != nil {
			return usage(err)
		}
		return interruptible(cmd.Context(), func(ctx context.Context) error { return p.run(ctx, f) })
	}
	return cmd
}

// check returns the pace of the crawler, or an error if a flag is wrong.
func (f *planFlags) check() (pace plan.Pace, err error) {
	if _, err := auditquery.Listed("--format", []string{f.format}, planFormats); err != nil {
		return pace, err
	}
	response, err := config.ParseDuration(f.response)
	switch {
	case err != nil || response < 0:
		return pace, fmt.Errorf("--response %q is no time such as 500ms", f.response)
	case f.clients < 1:
		return pace, fmt.Errorf("--clients %d is not a number from 1", f.clients)
	case f.limit < 0:
		return pace, fmt.Errorf("--limit %d is negative", f.limit)
	}
	return plan.Pace{Connections: f.clients, Response: response}, nil
}

// paceOf completes pace by the configuration.
func paceOf(cfg *config.Config, pace plan.Pace) plan.Pace {
	pace.MaxConcurrent, pace.DefaultDelay = cfg.Pacing.MaxConcurrent, cfg.Pacing.DefaultDelay
	pace.SpacingStart = cfg.Pacing.Spacing == config.SpacingStart
	return pace
}

// request returns the part of a request that all URLs have in common.
func (f *planFlags) request(cfg *config.Config) (policy.Request, error) {
	if f.as == "" {
		return policy.Request{UserAgent: f.agent}, nil
	}
	var names []string
	for _, c := range newClients(cfg) {
		if c.Name == f.as {
			c.Mode = nil
			return policy.Request{Client: c.Client, UserAgent: cmp.Or(c.UserAgent, f.agent)}, nil
		}
		names = append(names, c.Name)
	}
	return policy.Request{}, fmt.Errorf("--as %q is none of clients: %s", f.as, strings.Join(names, ", "))
}

// planner makes one plan.
type planner struct {
	std     stdio
	cfg     *config.Config
	list    string // the name of the file, or -
	pace    plan.Pace
	request policy.Request // without Origin and Target

	spool    *plan.Spool
	files    *planFiles
	bad      badLines
	progress planProgress
	unkept   sync.Once
}

// badLines are the lines of a list that are no URLs.
type badLines struct {
	count int64
	first []string // errors about the first of them
}

// reportedLines is the number of bad lines that are reported one by one.
const reportedLines = 10

func (b *badLines) add(list string, line int64, err error) {
	b.count++
	if len(b.first) < reportedLines {
		b.first = append(b.first, fmt.Sprintf("%s:%d: %v", list, line, err))
	}
}

func (b *badLines) report(w io.Writer) {
	for _, text := range b.first {
		fmt.Fprintln(w, "robotsproxy: "+safetext.Text(text))
	}
	if more := b.count - int64(len(b.first)); more > 0 {
		fmt.Fprintf(w, "robotsproxy: %s more lines are no URLs\n", auditview.Number(more))
	}
}

// run makes the plan and shows it. Nothing is shown before the plan is complete.
func (p *planner) run(ctx context.Context, f planFlags) (err error) {
	if p.spool, err = plan.NewSpool(); err != nil {
		return &exitError{exitUnknown, err}
	}
	defer p.spool.Close()
	result, err := p.make(ctx, f.estimate)
	if ctx.Err() != nil {
		return err
	}
	p.bad.report(p.std.err)
	if exit := (*exitError)(nil); err != nil && !errors.As(err, &exit) {
		return &exitError{exitUnknown, err} // exitNo would say that every URL is refused
	}
	if err != nil {
		return err
	}
	show := planText{Plan: result, Pace: p.pace, BadLines: p.bad.count, Limit: f.limit, Options: auditview.Options{
		Format: auditview.Format(f.format), Width: columns(p.std.out), Colour: hasColour(p.std.out),
	}}
	if err := show.write(p.std.out); err != nil {
		return err
	}
	switch {
	case result.Allowed > 0:
		return nil
	case result.Unknown > 0:
		return &exitError{code: exitUnknown}
	}
	return &exitError{code: exitNo}
}

// make reads the list, and judges its URLs. A line shows the progress meanwhile.
func (p *planner) make(ctx context.Context, estimate bool) (_ *plan.Plan, err error) {
	live := newLiveLine(p.std.err)
	p.std.err = live
	p.progress.began = time.Now()
	live.start(p.progress.text)
	defer live.stop()
	if err := p.read(ctx); err != nil {
		return nil, err
	}
	if len(p.spool.Sites()) == 0 {
		return nil, usage(fmt.Errorf("%s has no URL", p.list))
	}
	if p.files, err = openPlanFiles(ctx, p.cfg, estimate, p.warn); err != nil {
		return nil, err
	}
	hosts, err := p.hosts(ctx)
	if err = errors.Join(err, p.files.close()); err != nil {
		return nil, err
	}
	return plan.New(hosts, p.pace), nil
}

// warn says once that files cannot be kept.
func (p *planner) warn(err error) {
	p.unkept.Do(func() {
		fmt.Fprintln(p.std.err, "robotsproxy: warning: the robots.txt files cannot be kept:", safetext.Text(err.Error()))
	})
}

// read reads the list. It does not wait for a reader that an interrupt does not end, such as a terminal.
func (p *planner) read(ctx context.Context) error {
	in := p.std.in
	if p.list == "-" {
		p.list = "stdin"
	} else {
		file, err := os.Open(p.list)
		if err != nil {
			return usage(fmt.Errorf("reading the list of URLs: %w", err))
		}
		defer file.Close()
		in = file
	}
	done := make(chan error, 1)
	go func() {
		done <- plan.Lines(in, func(n int64, line string, err error) error { return p.add(ctx, n, line, err) })
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-done:
		if err != nil {
			return fmt.Errorf("reading %s: %w", p.list, err)
		}
		return p.spool.Flush()
	}
}

// add adds the URL on a line of the list.
func (p *planner) add(ctx context.Context, n int64, line string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		target, o, wrong := parseURL(line)
		if wrong == nil {
			p.progress.urls.Add(1)
			return p.spool.Add(o, target)
		}
		err = wrong
	}
	p.bad.add(p.list, n, err)
	return nil
}

// enforced returns cfg with mode enforce everywhere, since a plan foresees the refusals of that mode. A crawler may be
// given by its product token, which has no contact.
func enforced(cfg *config.Config) *config.Config {
	c := *cfg
	c.Mode, c.Identity.RequireContact = policy.Enforce, false
	c.Hosts = slices.Clone(cfg.Hosts)
	for i := range c.Hosts {
		c.Hosts[i].Mode = nil
	}
	return &c
}

package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/internal/auditquery"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
	"github.com/robotsproxy/robotsproxy/policy"
)

// addPeriodFlags adds the flags that select records by time. since is the default of --since.
func (c *auditCommand) addPeriodFlags(since string) *auditquery.Words {
	f, v := c.Flags(), new(auditquery.Words)
	f.StringVar(&v.Since, "since", since, "only requests from this `TIME` on: 24h or 30d ago, today, yesterday, 2026-11-22,\n"+
		"\"2026-11-22 14:00\", or RFC 3339")
	f.StringVar(&v.Until, "until", "", "only requests before this `TIME`")
	c.checks = append(c.checks, func() error { return c.readFilter(v, time.Now()) })
	return v
}

// addFilterFlags adds all flags that select records.
func (c *auditCommand) addFilterFlags(since string) {
	v := c.addPeriodFlags(since)
	c.singleFlag(&v.Host, "host", "only requests to this `HOST` or pattern, such as *.example")
	c.singleFlag(&v.Client, "client", "only requests of this `CLIENT`")
	c.singleFlag(&v.Agent, "agent", "only requests of the crawler with this `NAME`, from its User-Agent")
	c.singleFlag(&v.Tag, "tag", "only requests with this `TAG` in Robotsproxy-Tag")
	c.singleFlag(&v.Path, "path", "only requests with paths that begin with this `PATH`")
	c.singleFlag(&v.Rule, "rule", "only requests decided by this `RULE`, such as \"Disallow: /private/\"")
	c.listFlag(&v.Decisions, "decision", "only requests with one of these `DECISIONS`: allow, deny, would_deny, throttle,\n"+
		"would_throttle, exempt, error", words(policy.Outcomes))
	c.listFlag(&v.Reasons, "reason", "only requests with one of these `REASONS`, such as robots or pace", words(policy.Reasons))
	c.listFlag(&v.Vias, "via", "only requests that arrived in one of these `WAYS`: plain, intercepted, tunnel, robots\n"+
		"(default: all but robots, the proxy's own requests for robots.txt)", words(auditquery.Vias))
}

// singleFlag adds a flag that takes one value, which is not empty. Without this check a second value would replace the
// first, and an empty one, perhaps of a variable that is not set, would select all records.
func (c *auditCommand) singleFlag(value *string, name, usage string) {
	given := &single{value: value}
	c.Flags().Var(given, name, usage)
	c.checks = append(c.checks, func() error {
		switch {
		case given.times > 1:
			return fmt.Errorf("--%s is given %d times: it takes one value", name, given.times)
		case given.times == 1 && *value == "":
			return fmt.Errorf("--%s is empty: write a value, or omit the flag", name)
		}
		return nil
	})
}

// single is the value of a flag, with how often it was given.
type single struct {
	value *string
	times int
}

func (s *single) Set(text string) error {
	*s.value = text
	s.times++
	return nil
}

func (s *single) String() string { return *s.value }

func (*single) Type() string { return "string" }

// readFilter completes c.filter.
func (c *auditCommand) readFilter(w *auditquery.Words, now time.Time) error {
	limit := c.filter.Limit
	f, err := w.Filter(now.In(c.zone()))
	if err != nil {
		return fmt.Errorf("--%w", err)
	}
	c.filter, c.filter.Limit = f, limit
	return nil
}

// addFormatFlag adds the flag of the format.
func (c *auditCommand) addFormatFlag() {
	c.Flags().StringVar(&c.format, "format", string(auditview.Table), "print as `FORMAT`: "+auditquery.List(auditview.Formats))
	_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(words(auditview.Formats), cobra.ShellCompDirectiveNoFileComp))
	c.checks = append(c.checks, func() error {
		_, err := auditquery.Listed("--format", []string{c.format}, auditview.Formats)
		return err
	})
}

// addLimitFlag adds the flag that bounds the number of rows.
func (c *auditCommand) addLimitFlag(short string, limit int) {
	c.Flags().IntVarP(&c.filter.Limit, "limit", short, limit, "print at most this `NUMBER` of rows; 0: all")
	c.checks = append(c.checks, func() error {
		if c.filter.Limit < 0 {
			return fmt.Errorf("--limit %d is negative", c.filter.Limit)
		}
		return nil
	})
}

// options returns the options of the output.
func (c *auditCommand) options() auditview.Options {
	return auditview.Options{
		Format: auditview.Format(c.format), Width: columns(c.std.out), Colour: hasColour(c.std.out), Zone: c.zone(), Now: time.Now(),
	}
}

// listFlag adds a flag that takes several of some words.
func (c *auditCommand) listFlag(value *[]string, name, usage string, words []string) {
	c.Flags().StringSliceVar(value, name, nil, usage)
	_ = c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// zone returns the time zone in which times are read and printed.
func (c *auditCommand) zone() *time.Location {
	if c.utc {
		return time.UTC
	}
	return time.Local
}

func words[T ~string](all []T) (names []string) {
	for _, word := range all {
		names = append(names, string(word))
	}
	return names
}

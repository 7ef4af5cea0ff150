package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
	"github.com/robotsproxy/robotsproxy/internal/settings"
	"github.com/robotsproxy/robotsproxy/policy"
)

// filterFlags are flags of an audit.Filter, as written.
type filterFlags struct {
	since, until, host      string
	decisions, reasons, via []string
}

var vias = []audit.Via{audit.Plain, audit.Intercepted, audit.Tunnel, audit.Robots}

// addFilterFlags adds the flags that select records. since is the default of --since.
func (c *auditCommand) addFilterFlags(since string) {
	f, v := c.Flags(), new(filterFlags)
	f.StringVar(&v.since, "since", since, "only requests from this `TIME` on: 24h or 30d ago, today, yesterday, 2026-11-22,\n"+
		"\"2026-11-22 14:00\", or RFC 3339")
	f.StringVar(&v.until, "until", "", "only requests before this `TIME`")
	f.StringVar(&v.host, "host", "", "only requests to this `HOST` or pattern, such as *.example")
	f.StringVar(&c.filter.Client, "client", "", "only requests of this `CLIENT`")
	f.StringVar(&c.filter.Agent, "agent", "", "only requests of the crawler with this `NAME`, from its User-Agent")
	f.StringVar(&c.filter.Tag, "tag", "", "only requests with this `TAG` in Robotsproxy-Tag")
	f.StringVar(&c.filter.Path, "path", "", "only requests with paths that begin with this `PATH`")
	f.StringVar(&c.filter.Rule, "rule", "", "only requests decided by this `RULE`, such as \"Disallow: /private/\"")
	c.listFlag(&v.decisions, "decision", "only requests with one of these `DECISIONS`: allow, deny, would_deny, throttle,\n"+
		"would_throttle, exempt, error", words(policy.Outcomes))
	c.listFlag(&v.reasons, "reason", "only requests with one of these `REASONS`, such as robots or pace", words(policy.Reasons))
	c.listFlag(&v.via, "via", "only requests that arrived in one of these `WAYS`: plain, intercepted, tunnel, robots\n"+
		"(default: all but robots, the proxy's own requests for robots.txt)", words(vias))
	c.checks = append(c.checks, func() error { return c.readFilter(v, time.Now()) })
}

// readFilter completes c.filter.
func (c *auditCommand) readFilter(v *filterFlags, now time.Time) (err error) {
	f := &c.filter
	if f.Since, err = c.moment("since", v.since, now); err != nil {
		return err
	}
	if f.Until, err = c.moment("until", v.until, now); err != nil {
		return err
	}
	if !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return fmt.Errorf("--since %s is not before --until %s", v.since, v.until)
	}
	if v.host != "" {
		if f.Host, err = config.ParsePattern(v.host); err != nil {
			return fmt.Errorf("--host: %w", err)
		}
	}
	if f.Decisions, err = listed("--decision", v.decisions, policy.Outcomes); err != nil {
		return err
	}
	if f.Reasons, err = listed("--reason", v.reasons, policy.Reasons); err != nil {
		return err
	}
	f.Vias, err = listed("--via", v.via, vias)
	return err
}

// addFormatFlag adds the flag of the format.
func (c *auditCommand) addFormatFlag() {
	c.Flags().StringVar(&c.format, "format", string(auditview.Table), "print as `FORMAT`: "+list(auditview.Formats))
	_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(words(auditview.Formats), cobra.ShellCompDirectiveNoFileComp))
	c.checks = append(c.checks, func() error {
		_, err := listed("--format", []string{c.format}, auditview.Formats)
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

// moment reads the time of a flag. It returns the zero time if text is empty.
func (c *auditCommand) moment(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, ok := parsePast(text, now.In(c.zone()))
	if !ok {
		return t, fmt.Errorf("--%s %q is no time; write 24h or 30d (ago), today, yesterday, 2026-11-22, \"2026-11-22 14:00\" or "+
			"2026-11-22T14:00:00Z", flag, text)
	}
	return t, nil
}

// parsePast reads a duration before now, or a moment in the zone of now. A day stands for its beginning.
func parsePast(s string, now time.Time) (time.Time, bool) {
	midnight := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, now.Location())
	switch s {
	case "today":
		return midnight, true
	case "yesterday":
		return midnight.AddDate(0, 0, -1), true
	}
	if d, err := config.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), true
	}
	for _, layout := range append(dayLayouts, time.RFC3339) {
		if t, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// listed returns the values of a flag or an argument, which must be in all.
func listed[T ~string](name string, values []string, all []T) (found []T, err error) {
	for _, v := range values {
		word := T(strings.TrimSpace(v))
		if !slices.Contains(all, word) {
			return nil, notListed(name, v, all)
		}
		found = append(found, word)
	}
	return found, nil
}

func notListed[T ~string](name, value string, all []T) error {
	candidates := make(map[string]T, len(all)) // in snake case, which settings.Suggest expects
	names := make([]string, 0, len(all))
	for _, word := range all {
		snake := strings.ReplaceAll(string(word), "-", "_")
		candidates[snake] = word
		names = append(names, snake)
	}
	err := fmt.Errorf("%s %q is not one of %s", name, value, list(all))
	if near, ok := candidates[settings.Suggest(value, names)]; ok {
		return fmt.Errorf("%w; did you mean %s?", err, near)
	}
	return err
}

func words[T ~string](all []T) (names []string) {
	for _, word := range all {
		names = append(names, string(word))
	}
	return names
}

func list[T ~string](all []T) string { return strings.Join(words(all), ", ") }

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/auditquery"
	"github.com/robotsproxy/robotsproxy/internal/clientenv"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
	"github.com/robotsproxy/robotsproxy/policy"
)

const interventionHelp = `

HOST is a host such as a.example, for all its ports, or a pattern: '*.example' means all hosts below example. It holds
at once, also for requests that wait already, and over a restart. The reason is in the record of every request that it
affects. robotsproxy interventions lists what is in force, and robotsproxy resume ends it.`

// intervening is a command that makes an intervention. Its flags say why, who and until when.
type intervening struct {
	*apiCommand
	reason, by, until, length string
	all                       bool
}

func newIntervening(cmd *cobra.Command, std stdio) *intervening {
	cmd.Long = cmd.Short + "." + interventionHelp
	c := &intervening{apiCommand: newAPICommand(cmd, std)}
	c.actorFlags("why; required, since it is in the record of every request that this affects")
	cmd.Flags().StringVar(&c.until, "until", "", "end at this `TIME`: 16:30, 2026-12-31, 2026-12-31T16:30, or RFC 3339")
	cmd.Flags().StringVar(&c.length, "for", "", "end after this `DURATION`, such as 10m, 2h or 7d")
	return c
}

// actorFlags adds the flags that say who acts and why.
func (c *intervening) actorFlags(reason string) {
	c.Flags().StringVar(&c.reason, "reason", "", "`TEXT` that says "+reason)
	c.Flags().StringVar(&c.by, "by", "", "`NAME` of the person who orders it (default: your user name)")
}

func newStop(std stdio) *cobra.Command {
	cmd := &cobra.Command{Use: "stop HOST|--all", Short: "Send nothing more to a host; its requests are answered 503"}
	c := newIntervening(cmd, std)
	cmd.Flags().BoolVar(&c.all, "all", false, "stop every host")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		host, err := c.oneHost(args)
		if err != nil {
			return err
		}
		return c.intervene(admin.NewIntervention{Kind: policy.Stop, Host: host}, "refuses")
	}
	return cmd
}

func newSlow(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use: "slow HOST DELAY", Short: "Leave DELAY, such as 30s, between two requests to a host at least",
	}
	c := newIntervening(cmd, std)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) != 2 {
			return usage(fmt.Errorf("slow needs a HOST and a DELAY, as in robotsproxy slow a.example 30s"))
		}
		host, err := c.oneHost(args[:1])
		if err != nil {
			return err
		}
		delay, err := config.ParseDuration(args[1])
		if err != nil {
			return usage(fmt.Errorf("the delay: %w", err))
		}
		if delay <= 0 {
			return usage(fmt.Errorf("the delay of %s must be above 0", args[1]))
		}
		return c.intervene(admin.NewIntervention{Kind: policy.Slow, Host: host, Delay: inSeconds(delay)}, "delays")
	}
	return cmd
}

func newBypass(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use: "bypass [HOST]", Short: "Only report for a while what would be refused or delayed, for a host or for all",
	}
	c := newIntervening(cmd, std)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		c.all = len(args) == 0
		host, err := c.oneHost(args)
		if err != nil {
			return err
		}
		if c.until == "" && c.length == "" {
			return usage(errors.New("bypass needs its end, such as --for 10m: a bypass that is forgotten is no politeness"))
		}
		return c.intervene(admin.NewIntervention{Kind: policy.Bypass, Host: host}, "lets pass")
	}
	return cmd
}

// oneHost returns the pattern in args, or that of all hosts.
func (c *intervening) oneHost(args []string) (string, error) {
	switch {
	case c.all && len(args) == 0:
		return "*", nil
	case c.all:
		return "", usage(fmt.Errorf("--all and %s exclude each other", args[0]))
	case len(args) != 1:
		return "", usage(fmt.Errorf("%s needs one HOST, such as a.example or '*.example'%s", c.Name(),
			map[bool]string{true: ", or --all"}[c.Flags().Lookup("all") != nil]))
	}
	host, err := config.ParsePattern(args[0])
	if err != nil {
		return "", usage(fmt.Errorf("%s is not a host or a pattern of hosts: %w", args[0], err))
	}
	return host, nil
}

// intervene makes an intervention. does says what it does to requests.
func (c *intervening) intervene(n admin.NewIntervention, does string) error {
	if strings.TrimSpace(c.reason) == "" {
		return usage(fmt.Errorf("%s needs --reason \"…\": it is kept in the record of every request that it %s", c.Name(), does))
	}
	n.Reason, n.By = c.reason, operator(c.by)
	if err := c.setEnd(&n, time.Now()); err != nil {
		return usage(err)
	}
	var done admin.InterventionChange
	r := apiRequest{method: http.MethodPost, path: "/interventions", body: n}
	return c.showChange(r, &done, func(w io.Writer) error {
		for _, i := range done.Interventions {
			fmt.Fprintf(w, "%s on %s%s.%s\n", begun(i), instances(done.Instances), end(i), effects(i, done.InterventionEffect))
			host := i.Host
			if strings.Contains(host, "*") {
				host = clientenv.Quote(host)
			}
			fmt.Fprintf(w, "%s resume %s ends it.\n", selfCommand(), host)
		}
		c.warn(done.InterventionEffect)
		return nil
	})
}

// operator returns the name of the person who gives a command: by, if it is not empty.
func operator(by string) string {
	if by != "" {
		return by
	}
	if name := os.Getenv("SUDO_USER"); name != "" {
		return name
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return cmp.Or(os.Getenv("USER"), "unknown")
}

// setEnd sets the end of n by the flags.
func (c *intervening) setEnd(n *admin.NewIntervention, now time.Time) error {
	switch {
	case c.until != "" && c.length != "":
		return errors.New("--until and --for exclude each other")
	case c.length != "":
		d, err := config.ParseDuration(c.length)
		if err != nil {
			return fmt.Errorf("--for: %w", err)
		}
		if d <= 0 {
			return fmt.Errorf("--for %s is not above 0", c.length)
		}
		n.For = inSeconds(d)
	case c.until != "":
		until, err := parseMoment(c.until, now)
		if err != nil {
			return err
		}
		if !until.After(now) {
			return fmt.Errorf("--until %s is in the past", c.until)
		}
		n.Until = until
	}
	return nil
}

// parseMoment reads a moment of local time, or with a zone. A time of day means its next one after now.
func parseMoment(s string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	for _, layout := range auditquery.DayLayouts {
		if t, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			return t, nil
		}
	}
	for _, layout := range []string{"15:04", "15:04:05"} {
		t, err := time.Parse(layout, s)
		if err != nil {
			continue
		}
		at := time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), 0, now.Location())
		if !at.After(now) {
			at = at.AddDate(0, 0, 1)
		}
		return at, nil
	}
	return time.Time{}, fmt.Errorf("--until %q is no moment such as 16:30, 2026-12-31 or 2026-12-31T16:30:00Z", s)
}

func newResume(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resume [HOST|--all]",
		Short: "End the stop, slow and bypass of a host",
		Long: `End the stop, slow and bypass of a host or pattern, as robotsproxy interventions lists it. Without HOST it ends those of
the only host that has any.`,
	}
	c := &intervening{apiCommand: newAPICommand(cmd, std)}
	c.actorFlags("why, for the log")
	cmd.Flags().BoolVar(&c.all, "all", false, "end all interventions")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		query := url.Values{"by": {operator(c.by)}, "reason": {c.reason}}
		if c.all && len(args) == 0 {
			query.Set("all", "true")
		} else if len(args) > 0 {
			host, err := c.oneHost(args)
			if err != nil {
				return err
			}
			query.Set("host", host)
		}
		var done admin.InterventionChange
		r := apiRequest{method: http.MethodDelete, path: "/interventions", query: query}
		return c.showChange(r, &done, func(w io.Writer) error {
			for _, i := range done.Interventions {
				fmt.Fprintf(w, "%s on %s.\n", lifted(i), instances(done.Instances))
			}
			c.warn(done.InterventionEffect)
			return nil
		})
	}
	return cmd
}

// showChange makes a change and shows it. The error names the instances on which it may not be in force.
func (c *intervening) showChange(r apiRequest, done *admin.InterventionChange, text func(io.Writer) error) error {
	if err := c.show(r, done, text); err != nil {
		return err
	}
	return unconfirmed(done.Instances)
}

// unconfirmed returns an error that names the instances on which a change may not be in force, or nil.
func unconfirmed(n admin.InstanceCount) error {
	switch {
	case len(n.Missing) == 0 && n.Error == "":
		return nil
	case len(n.Missing) == 0:
		return fmt.Errorf("other instances may not know it yet (%s). Each gets the change as soon as it reaches Redis",
			safetext.Lines(n.Error))
	}
	why := ""
	if n.Error != "" {
		why = " (" + safetext.Lines(n.Error) + ")"
	}
	return fmt.Errorf("%s did not confirm it%s: %s. Each gets the change as soon as it reaches Redis",
		count(len(n.Missing), "instance"), why, safetext.Lines(strings.Join(n.Missing, "; ")))
}

// warn says on standard error what is wrong with a change.
func (c *intervening) warn(e admin.InterventionEffect) {
	if e.NotStored != "" {
		fmt.Fprintln(c.std.err, "robotsproxy: warning: it ends with the process, since it cannot be stored:", safetext.Lines(e.NotStored))
	}
}

func newInterventions(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use: "interventions", Short: "List the stops, slows and bypasses that are in force", Args: noArgs,
	}
	api := newAPICommand(cmd, std)
	cmd.RunE = func(*cobra.Command, []string) error {
		var list admin.InterventionList
		return api.show(apiGet("/interventions", nil), &list, func(w io.Writer) error {
			return showInterventions(w, list.Interventions, time.Now())
		})
	}
	return cmd
}

func showInterventions(w io.Writer, all []admin.Intervention, now time.Time) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "No intervention is in force.")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 4, ' ', 0)
	fmt.Fprintln(t, "host\twhat\tsince\tuntil\tby\treason")
	for _, i := range all {
		until := "open"
		if !i.Until.IsZero() {
			until = moment(i.Until, now)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", safetext.Text(i.Host), what(i), moment(i.Since, now), until,
			safetext.Text(i.By), safetext.Text(i.Reason))
	}
	return t.Flush()
}

// what returns what i does, in a word.
func what(i admin.Intervention) string {
	switch i.Kind {
	case policy.Stop:
		return "stopped"
	case policy.Slow:
		return "slow " + spell(delayOf(i))
	default:
		return "bypassed"
	}
}

// spell returns d in at most two units: 30 s, 1 m 10 s, 2 h.
func spell(d time.Duration) string {
	units := []struct {
		name   string
		length time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}}
	for n, u := range units {
		if d < u.length {
			continue
		}
		text, rest := fmt.Sprintf("%d %s", d/u.length, u.name), d%u.length
		smaller, name := time.Second, "s"
		if n+1 < len(units) {
			smaller, name = units[n+1].length, units[n+1].name
		}
		if rest >= smaller {
			text += fmt.Sprintf(" %d %s", rest/smaller, name)
		}
		return text
	}
	return seconds(d) + " s"
}

func delayOf(i admin.Intervention) time.Duration {
	return time.Duration(i.Delay * float64(time.Second))
}

// begun says what i does now.
func begun(i admin.Intervention) string {
	switch i.Kind {
	case policy.Stop:
		return subject(i) + " stopped"
	case policy.Slow:
		return subject(i) + " slowed down to one request in " + spell(delayOf(i))
	default:
		return subject(i) + " bypassed"
	}
}

// lifted says what i did.
func lifted(i admin.Intervention) string {
	switch i.Kind {
	case policy.Stop:
		return subject(i) + " no longer stopped"
	case policy.Slow:
		return subject(i) + " no longer slowed down"
	default:
		return subject(i) + " no longer bypassed"
	}
}

// subject returns the hosts of i with their verb.
func subject(i admin.Intervention) string {
	if i.Host == "*" {
		return "All hosts are"
	}
	return safetext.Text(i.Host) + " is"
}

func instances(n admin.InstanceCount) string {
	return fmt.Sprintf("%d of %d instances", n.Acknowledged, n.Total)
}

// end returns " until" and the end of i, or nothing.
func end(i admin.Intervention) string {
	if i.Until.IsZero() {
		return ""
	}
	return " until " + moment(i.Until, time.Now())
}

// effects says what i does to requests, as a sentence after another.
func effects(i admin.Intervention, e admin.InterventionEffect) string {
	switch i.Kind {
	case policy.Slow:
		return ""
	case policy.Bypass:
		return " What would be refused or delayed is only reported."
	}
	were := func(n int) string {
		if n == 1 {
			return "was"
		}
		return "were"
	}
	text := fmt.Sprintf(" %s %s answered 503", count(e.Answered, "waiting request"), were(e.Answered))
	var closed []string
	if e.Tunnels > 0 {
		closed = append(closed, count(e.Tunnels, "tunnel"))
	}
	if e.WebSockets > 0 {
		closed = append(closed, count(e.WebSockets, "WebSocket"))
	}
	if len(closed) > 0 {
		text += fmt.Sprintf(", %s %s closed", strings.Join(closed, " and "), were(e.Tunnels+e.WebSockets))
	}
	return text + "."
}

// moment returns t in local time: with seconds if it is near, and with its day if it is not within twelve hours.
func moment(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	switch distance := t.Sub(now).Abs(); {
	case distance < 10*time.Minute:
		return t.Format("15:04:05")
	case distance < 12*time.Hour: // also beyond midnight: no other moment of that time is as near
		return t.Format("15:04")
	case t.Year() != now.Year():
		return t.Format("2 Jan 2006")
	default:
		return t.Format("2 Jan 15:04")
	}
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/auditquery"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
	"github.com/robotsproxy/robotsproxy/internal/top"
	"github.com/robotsproxy/robotsproxy/policy"
)

// topCommand is the command top.
type topCommand struct {
	*apiCommand
	query    top.Query
	interval time.Duration
	count    int // of samples; 0: no end
	once     bool
	by       string
}

// topFormats are the formats without a view.
var topFormats = []auditview.Format{auditview.Table, auditview.JSON}

func newTop(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch the hosts to which a running robotsproxy sends requests: refusals, queues, pauses",
		Long: `Watch a running robotsproxy: its requests per second, and for each host the requests and refusals of the
last hour, the requests that wait, the Delay, the time until the next request, and the stops and pauses. The figures are
those of one instance.

On a terminal it is a view that follows the proxy, in which hosts are sorted, searched, stopped and resumed: ? lists the
keys. A stop asks for a reason, as robotsproxy stop does. Elsewhere, and with --once, --count or --format, it prints a
table for each interval, or a JSON object on a line.`,
		Example: `  robotsproxy top
  robotsproxy top --once --sort waiting
  robotsproxy top --format json --interval 10s | jq .total.blocked`,
		Args: noArgs,
	}
	api := &apiCommand{Command: cmd, std: std, settings: configFlags(cmd, "admin.listen", "admin.token_file")}
	c := &topCommand{apiCommand: api}
	f := cmd.Flags()
	f.StringVar(&c.adminURL, "admin", "", "watch the instance with this `URL` of the admin listener")
	f.StringVar(&c.format, "format", string(auditview.Table), "print as `FORMAT`: table or json")
	f.StringVar(&c.query.Sort, "sort", "requests", "sort by `COLUMN`: "+auditquery.List(admin.LaneOrders()))
	f.StringVar(&c.query.Host, "host", "", "only hosts with this `TEXT` in their names")
	f.DurationVar(&c.query.Window, "window", admin.MaxWindow,
		"count the requests of this `DURATION`: whole minutes, at most 1h")
	f.IntVarP(&c.query.Limit, "limit", "n", 20, "print at most this `NUMBER` of hosts, up to 1000")
	f.DurationVar(&c.interval, "interval", 2*time.Second, "`DURATION` between two samples, 100ms at least")
	f.BoolVar(&c.once, "once", false, "print one sample; the same as --count 1")
	f.IntVar(&c.count, "count", 0, "print this `NUMBER` of samples; 0: until an interrupt")
	f.StringVar(&c.by, "by", "", "`NAME` of the person who stops and resumes hosts (default: your user name)")
	_ = cmd.RegisterFlagCompletionFunc("sort",
		cobra.FixedCompletions(admin.LaneOrders(), cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(*cobra.Command, []string) error {
		if err := c.check(); err != nil {
			return usage(err)
		}
		return interruptible(cmd.Context(), c.run)
	}
	return cmd
}

func (c *topCommand) run(ctx context.Context) error {
	cfg, err := c.settings.loadForAPI(c.Command, c.std)
	if err != nil {
		return err
	}
	p := topProxy{cfg, c}
	if !c.isLive() {
		return c.print(ctx, p)
	}
	return top.Run(ctx, top.Options{
		Proxy: p, In: c.std.in, Out: c.std.out, Query: c.query, Interval: c.interval, Colour: hasColour(c.std.out),
	})
}

// check returns an error about the flags.
func (c *topCommand) check() error {
	if _, err := auditquery.Listed("--format", []string{c.format}, topFormats); err != nil {
		return err
	}
	if _, err := auditquery.Listed("--sort", []string{c.query.Sort}, admin.LaneOrders()); err != nil {
		return err
	}
	switch {
	case c.once && c.Flags().Changed("count"):
		return fmt.Errorf("--once and --count exclude each other")
	case c.interval < 100*time.Millisecond:
		return fmt.Errorf("--interval %v is less than 100ms", c.interval)
	case c.count < 0:
		return fmt.Errorf("--count %d is negative", c.count)
	case c.query.Limit < 1 || c.query.Limit > 1000:
		return fmt.Errorf("--limit %d is not from 1 to 1000", c.query.Limit)
	}
	if c.once {
		c.count = 1
	}
	return nil
}

// isLive reports whether the command is a view on a terminal.
func (c *topCommand) isLive() bool {
	return c.count == 0 && !c.Flags().Changed("format") && os.Getenv("TERM") != "dumb" &&
		isTerminal(c.std.in) && isTerminal(c.std.out)
}

// print prints the samples.
func (c *topCommand) print(ctx context.Context, p topProxy) error {
	tick := time.NewTicker(c.interval)
	defer tick.Stop()
	for n := 1; ; n++ {
		s, err := p.Sample(ctx, c.query)
		if err != nil {
			return err
		}
		if err := c.printSample(s, n); err != nil {
			return err
		}
		if n == c.count {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *topCommand) printSample(s *top.Sample, n int) error {
	if c.format == string(auditview.JSON) {
		e := json.NewEncoder(safetext.JSONWriter(c.std.out))
		e.SetEscapeHTML(false)
		return e.Encode(s)
	}
	if n > 1 {
		if _, err := fmt.Fprintln(c.std.out); err != nil {
			return err
		}
	}
	return s.Write(c.std.out, auditview.Options{
		Width: columns(c.std.out), Colour: hasColour(c.std.out), Zone: time.Local, Now: s.Time,
	})
}

// topProxy is the proxy that runs with a configuration. It looks for it anew at each call, since it may have been
// started again at another address.
type topProxy struct {
	cfg *config.Config
	*topCommand
}

func (p topProxy) ask(ctx context.Context, r apiRequest, v any) error {
	i, err := findInstance(p.cfg, p.adminURL)
	if err != nil {
		return err
	}
	defer i.client.CloseIdleConnections()
	return i.call(ctx, r.method, r.path, r.query, r.body, v)
}

func (p topProxy) Sample(ctx context.Context, q top.Query) (*top.Sample, error) {
	s := &top.Sample{Time: time.Now().UTC()}
	query := url.Values{
		"sort": {q.Sort}, "host": {q.Host}, "window": {q.Window.String()}, "limit": {strconv.Itoa(q.Limit)},
	}
	if err := p.ask(ctx, apiGet("/hosts", query), &s.LaneList); err != nil {
		return nil, err
	}
	var list admin.InterventionList
	if err := p.ask(ctx, apiGet("/interventions", nil), &list); err != nil {
		return nil, err
	}
	s.Interventions = list.Interventions
	return s, p.ask(ctx, apiGet("/status", nil), &s.Status)
}

func (p topProxy) Stop(ctx context.Context, host, reason string) (string, error) {
	var done admin.InterventionChange
	stop := admin.NewIntervention{Kind: policy.Stop, Host: host, Reason: reason, By: operator(p.by)}
	if err := p.ask(ctx, apiRequest{method: http.MethodPost, path: "/interventions", body: stop}, &done); err != nil {
		return "", err
	}
	text := effectText(done, begun)
	for _, i := range done.Interventions {
		text += effects(i, done.InterventionEffect)
	}
	return text + " u resumes it.", unconfirmed(done.Instances)
}

func (p topProxy) Resume(ctx context.Context, host string) (string, error) {
	var done admin.InterventionChange
	query := url.Values{"host": {host}, "by": {operator(p.by)}}
	r := apiRequest{method: http.MethodDelete, path: "/interventions", query: query}
	if err := p.ask(ctx, r, &done); err != nil {
		return "", err
	}
	return effectText(done, lifted), unconfirmed(done.Instances)
}

// effectText says for which interventions a change was made, and on how many instances.
func effectText(done admin.InterventionChange, did func(admin.Intervention) string) (text string) {
	for _, i := range done.Interventions {
		text += fmt.Sprintf("%s on %s.", did(i), instances(done.Instances))
	}
	return text
}

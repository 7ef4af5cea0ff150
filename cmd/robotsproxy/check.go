package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/rules"
)

func newCheck(std stdio) *cobra.Command {
	var agent, file, format, dialect, purpose string
	var explain, inBatch bool
	cmd := &cobra.Command{
		Use:   "check URL... [-A AGENT] [--robots FILE|-] [--dialect NAME] [--purpose PURPOSE] [--explain] | check --batch",
		Short: "Check whether an agent may fetch a URL, and which line of robots.txt decides",
		Long: `Check whether an agent may fetch URLs, and print the line of robots.txt that decides. The file is fetched from the
URL's origin, unless hosts has a robots_file for it or --robots is given. You may ask about any host, so the guard on
addresses does not apply to the host of the URL, only to the targets of redirects.

--purpose judges as usage: enforce does for a client with that purpose, by the preferences in robots.txt about the use of
content (Content-Usage, Content-Signal).

--explain adds the reason, the other rules that match, and those that match in groups of other agents.

With --batch, each line of standard input is a JSON object {"robots" or "robots_b64", "ua", "url" or "url_b64"},
optionally with "dialect" and "robots_url". The output has one line for each: {"allowed", "line", "rule", "crawl_delay"
(in seconds, or null), "sitemaps"}, or {"error"} if the line cannot be read.

The exit status is 0 if all URLs are allowed, 1 if one is refused, and 4 if a robots.txt could not be fetched.`,
		Example: `  robotsproxy check https://a.example/private/x -A NewsBot
  robotsproxy check /private/x -A NewsBot --robots robots.txt`,
		Args: cobra.ArbitraryArgs,
	}
	settings := configFlags(cmd)
	cmd.Flags().StringVarP(&agent, "agent", "A", "*", "product token or whole User-Agent of the crawler, as `AGENT`")
	cmd.Flags().StringVar(&file, "robots", "", "judge by this `FILE` (- for standard input) instead of fetching one")
	cmd.Flags().StringVar(&format, "format", "text", "print as `FORMAT`: text, or json with one line for each URL")
	cmd.Flags().StringVar(&dialect, "dialect", "", "read robots.txt in this `DIALECT` instead of robots.dialect")
	cmd.Flags().StringVar(&purpose, "purpose", "", "judge the preferences about use for this `PURPOSE`, such as train-ai")
	cmd.Flags().BoolVar(&explain, "explain", false, "show the reason and all rules that match")
	cmd.Flags().BoolVar(&inBatch, "batch", false, "answer the JSON lines of standard input")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := batchAlone(cmd, inBatch); err != nil {
			return usage(err)
		}
		if len(args) == 0 && !inBatch {
			return usage(errors.New("check needs a URL: robotsproxy check https://a.example/page -A NewsBot"))
		}
		show, ok := verdictFormats[format]
		if !ok {
			return usage(fmt.Errorf("--format %q is neither text nor json", format))
		}
		cfg, err := settings.load(cmd, std)
		if err != nil {
			return err
		}
		if dialect != "" {
			if cfg.Robots.Dialect, err = rules.ParseDialect(dialect); err != nil {
				return usage(fmt.Errorf("--dialect: %w", err))
			}
		}
		if purpose != "" && !slices.Contains(policy.Purposes, policy.Purpose(purpose)) {
			return usage(fmt.Errorf("--purpose %q is none of %s", purpose, purposeList()))
		}
		if inBatch {
			if len(args) > 0 {
				return usage(errors.New("check --batch takes its URLs from standard input"))
			}
			return (&batch{dialect: cfg.Robots.Dialect}).run(std.in, std.out)
		}
		ctx, stop := context.WithCancel(cmd.Context())
		defer stop()
		c, err := newChecker(ctx, cfg, std, agent, file)
		if err != nil {
			return err
		}
		c.explain, c.purpose = explain, policy.Purpose(purpose)
		return c.all(ctx, args, func(a answer) error { return show(std.out, a) })
	}
	return cmd
}

// batchAlone rejects flags that --batch would ignore: every line has its own agent and file.
func batchAlone(cmd *cobra.Command, inBatch bool) error {
	for _, name := range []string{"agent", "explain", "format", "purpose", "robots"} {
		if inBatch && cmd.Flags().Changed(name) {
			return fmt.Errorf("--batch takes no --%s: its lines are JSON objects, in and out", name)
		}
	}
	return nil
}

// answer is the result for one URL.
type answer struct {
	URL          string   `json:"url"`
	Agent        string   `json:"agent"`
	Allowed      *bool    `json:"allowed"` // null if the file could not be fetched
	Line         int      `json:"line,omitempty"`
	Rule         string   `json:"rule,omitempty"`
	TooComplex   bool     `json:"too_complex,omitempty"` // the verdict takes too many steps, so the URL is refused
	GroupLine    int      `json:"group_line,omitempty"`
	GroupAgents  string   `json:"group_agents,omitempty"`
	CrawlDelay   *float64 `json:"crawl_delay"` // seconds
	RobotsURL    string   `json:"robots_url,omitempty"`
	RobotsState  string   `json:"robots_state"`
	RobotsStatus int      `json:"robots_status,omitempty"`
	RobotsSHA256 string   `json:"robots_sha256,omitempty"`
	Redirects    []string `json:"redirects,omitempty"`
	Cause        string   `json:"cause,omitempty"`     // the reason if Allowed is null
	HostRule     string   `json:"host_rule,omitempty"` // by which the proxy lets no client visit the host
	Tunnel       string   `json:"tunnel,omitempty"`    // tunnel or refuse, if the proxy does not intercept the host
	Usage        string   `json:"usage,omitempty"`     // the preferences in robots.txt about the use of the resource
	Purpose      string   `json:"purpose,omitempty"`   // that robots.txt does not permit

	RobotsOwn       bool       `json:"robots_own,omitempty"` // it is a robots_file of the operator
	RobotsMarks     string     `json:"robots_marks,omitempty"`
	RobotsFetchedAt *time.Time `json:"robots_fetched_at,omitempty"`
	RobotsAge       *float64   `json:"robots_age,omitempty"`          // seconds
	NextRefresh     *time.Time `json:"robots_next_refresh,omitempty"` // when a proxy that uses it fetches it again

	Explanation *explanation `json:"explanation,omitempty"`
}

// checker checks URLs for one agent.
type checker struct {
	agent   string
	purpose policy.Purpose
	dialect rules.Dialect
	judge   *policy.Policy
	proxy   *policy.Policy // of a proxy with this configuration
	lookUp  func(context.Context, origin.Origin) (*robots.Snapshot, error)
	local   bool // lookUp reads a file, and a URL may be a path alone
	explain bool
}

// newChecker returns a checker that works until ctx ends.
func newChecker(ctx context.Context, cfg *config.Config, std stdio, agent, file string) (*checker, error) {
	judge, err := policy.New(policy.Options{Dialect: cfg.Robots.Dialect, Usage: policy.UsageEnforce})
	if err != nil {
		return nil, err
	}
	configured := inputs{cfg: cfg}
	if configured.lists, err = readHostLists(cfg, nil); err != nil {
		return nil, err
	}
	if err := configured.compile(); err != nil {
		return nil, usage(err)
	}
	c := &checker{
		agent: agent, dialect: cfg.Robots.Dialect, judge: judge, proxy: configured.policy, local: file != "",
	}
	if c.local {
		c.lookUp, err = fromFile(file, std.in)
	} else {
		c.lookUp, err = fromOrigin(ctx, cfg)
	}
	return c, err
}

func fromFile(file string, stdin io.Reader) (func(context.Context, origin.Origin) (*robots.Snapshot, error), error) {
	var body []byte
	var err error
	if file == "-" {
		body, err = io.ReadAll(stdin)
	} else {
		body, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, usage(fmt.Errorf("reading the robots.txt: %w", err))
	}
	return func(_ context.Context, o origin.Origin) (*robots.Snapshot, error) {
		snap := fileSnapshot(body)
		if o != anyOrigin && snap.ContentType == "" {
			snap.Origin, snap.ContentType = o, "text/plain; charset=utf-8" // values of rules may be URLs of o
		}
		return snap, nil
	}, nil
}

// all checks each URL. It returns the exit status 1 if one is refused, else 4 if one is unknown.
func (c *checker) all(ctx context.Context, urls []string, show func(answer) error) error {
	var refused, unknown bool
	for _, u := range urls {
		a, err := c.one(ctx, u)
		if err != nil {
			return err
		}
		if err := show(a); err != nil {
			return err
		}
		unknown = unknown || a.Allowed == nil
		refused = refused || a.Allowed != nil && !*a.Allowed
	}
	switch {
	case refused:
		return &exitError{code: exitNo}
	case unknown:
		return &exitError{code: exitUnknown}
	}
	return nil
}

// anyOrigin is the origin of a URL that is a path alone.
var anyOrigin, _ = origin.Parse("https://robots.invalid")

func (c *checker) one(ctx context.Context, raw string) (answer, error) {
	target, o, err := c.parse(raw)
	if err != nil {
		return answer{}, usage(err)
	}
	snap, err := c.lookUp(ctx, o)
	if err != nil {
		return answer{}, &exitError{exitUnknown, err}
	}
	request := policy.Request{Client: policy.Client{Purpose: c.purpose}, Origin: o, Target: target, UserAgent: c.agent}
	d := c.judge.Decide(request, snap, time.Now())
	a := c.answer(raw, o, d, snap)
	if delay, ok := snap.RulesFor(c.dialect).Agent(c.agent).CrawlDelay(); ok {
		seconds := inSeconds(delay)
		a.CrawlDelay = &seconds
	}
	if c.explain && a.Allowed != nil {
		e := snap.RulesFor(c.dialect).Agent(c.agent).Explain(target)
		if d.Verdict.TooComplex { // perhaps in another form of the path, which Explain does not judge
			e.Why, e.Matches, e.OtherAgents = rules.ReasonTooComplex, nil, nil
		}
		a.Explanation = explained(e)
	}
	return a, nil
}

// parse parses a URL or, if c.local is set, a path, which it returns as written. It removes a fragment.
func (c *checker) parse(raw string) (target string, o origin.Origin, err error) {
	if c.local && strings.HasPrefix(raw, "/") {
		target, _, _ = strings.Cut(raw, "#")
		return target, anyOrigin, nil
	}
	target, o, err = parseURL(raw)
	if err != nil && strings.HasPrefix(raw, "/") {
		err = fmt.Errorf("%q is a path: write the URL, such as https://a.example%s, or name a file with --robots", raw, raw)
	}
	return target, o, err
}

// parseURL returns the target and the origin of a URL. It removes a fragment.
func parseURL(raw string) (target string, o origin.Origin, err error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", origin.Origin{}, err
	}
	u.RawPath = origin.RawPath(u)
	o, err = origin.FromURL(u)
	if err != nil && !strings.Contains(raw, "://") {
		err = fmt.Errorf("%q is not a URL; did you mean https://%s?", raw, raw)
	}
	return u.RequestURI(), o, err
}

func (c *checker) answer(raw string, o origin.Origin, d policy.Decision, snap *robots.Snapshot) answer {
	a := answer{
		URL: raw, Agent: c.agent, TooComplex: d.Verdict.TooComplex, Line: d.Verdict.Line, Rule: safetext.UTF8(d.Verdict.Rule),
		GroupLine: d.Verdict.Group.Line, GroupAgents: safetext.UTF8(d.Verdict.Group.Agents),
		RobotsState: snap.State(), RobotsStatus: snap.Status, RobotsSHA256: snap.SHA256, Redirects: snap.Redirects,
		Usage: safetext.UTF8(d.Usage),
	}
	if d.Reason == policy.ReasonUsage {
		a.Purpose = string(c.purpose)
	}
	switch {
	case c.local:
	case snap.Origin.IsZero():
		a.RobotsOwn = true
	default:
		a.fetched(o, snap, time.Now())
	}
	if o != anyOrigin {
		a.HostRule, _ = c.proxy.DeniedToAll(o.Host())
	}
	if how := c.proxy.Interception(o.Host()); o.Scheme() == "https" && o != anyOrigin && how != policy.Intercept {
		a.Tunnel = how.String()
	}
	if d.Reason == policy.ReasonRobotsUnreachable {
		a.Cause = cause(snap)
		return a
	}
	allowed := d.Action == policy.Forward
	a.Allowed = &allowed
	return a
}

// fetched sets the fields about a file that was fetched.
func (a *answer) fetched(o origin.Origin, snap *robots.Snapshot, now time.Time) {
	age, next := now.Sub(snap.Fetched).Seconds(), snap.Renewal()
	a.RobotsURL, a.RobotsMarks = o.String()+"/robots.txt", snap.Flags.String()
	a.RobotsFetchedAt, a.RobotsAge, a.NextRefresh = &snap.Fetched, &age, &next
}

// cause returns the reason for which a robots.txt could not be fetched.
func cause(snap *robots.Snapshot) string {
	if snap.Err != nil {
		return plainError(snap.Err).Error()
	}
	return fmt.Sprintf("the origin answered %d", snap.Status)
}

var verdictFormats = map[string]func(io.Writer, answer) error{"text": showText, "json": showJSON}

func showJSON(w io.Writer, a answer) error {
	e := json.NewEncoder(safetext.JSONWriter(w))
	e.SetEscapeHTML(false)
	return e.Encode(a)
}

func showText(w io.Writer, a answer) error {
	word := "unknown"
	if a.Allowed != nil {
		word = map[bool]string{true: "allowed", false: "refused"}[*a.Allowed]
	}
	_, err := fmt.Fprintf(w, "%s  %s  %s\n%s%s%s", word, safetext.Text(a.URL), safetext.Text(a.why()),
		a.source(time.Now()), a.usageText()+a.hostText()+tunnelText[a.Tunnel], a.Explanation.text())
	return err
}

// usageText is the line about the preferences of the site.
func (a answer) usageText() string {
	if a.Usage == "" {
		return ""
	}
	return "  use, by " + safetext.Text(a.Usage) + "\n"
}

func purposeList() string {
	words := make([]string, len(policy.Purposes))
	for i, p := range policy.Purposes {
		words[i] = string(p)
	}
	return strings.Join(words, ", ")
}

// hostText is the line for a host that no client may visit.
func (a answer) hostText() string {
	if a.HostRule == "" {
		return ""
	}
	return "  host: a proxy with this configuration refuses every request to it: " + safetext.Text(a.HostRule) + "\n"
}

// tunnelText is the line for a host whose requests a proxy does not see.
var tunnelText = map[string]string{
	policy.Tunnel.String(): "  tunnel: a proxy with this configuration passes it on unread, " +
		"and refuses it only where robots.txt disallows everything\n",
	policy.NoTunnel.String(): "  tunnel: a proxy with this configuration lets none to this host through\n",
}

// source returns the line about the file: its URL, state and age, and when it is fetched again.
func (a answer) source(now time.Time) string {
	switch {
	case a.RobotsOwn:
		return "  your own robots_file (hosts), in the place of the site's\n"
	case a.RobotsURL == "":
		return ""
	}
	state := stateText(a.RobotsState, a.RobotsMarks)
	if a.RobotsStatus != 0 {
		state += fmt.Sprintf(", status %d", a.RobotsStatus)
	}
	s := fmt.Sprintf("  %s: %s, fetched %s ago, asked for again in %s",
		a.RobotsURL, state, since(*a.RobotsFetchedAt, now), since(now, *a.NextRefresh))
	for _, u := range a.Redirects {
		s += "\n    redirected to " + safetext.Text(u)
	}
	return s + "\n"
}

// why returns the reason of the result.
func (a answer) why() string {
	var s string
	switch {
	case a.Cause != "":
		s = a.Cause
	case a.TooComplex:
		s = "too complex: it takes too many steps to find the rule that decides"
	case a.Line > 0:
		s = fmt.Sprintf("line %d: %s (group of %s, line %d)", a.Line, a.Rule, a.GroupAgents, a.GroupLine)
	case a.RobotsState == "unavailable":
		s = fmt.Sprintf("no robots.txt (status %d)", a.RobotsStatus)
	default:
		s = "no rule matches"
	}
	if a.Purpose != "" {
		s += "; it does not permit the purpose " + a.Purpose
	}
	if a.CrawlDelay != nil {
		s += fmt.Sprintf("; Crawl-delay %g s", *a.CrawlDelay)
	}
	return s
}

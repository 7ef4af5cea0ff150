package dossier

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/proof"
	"github.com/robotsproxy/robotsproxy/policy"
)

// Bounds of the page, which must stay readable, and of the memory for it. The other files have everything.
const (
	maxClients  = 50
	maxNotes    = 100
	maxDeciders = 1000
	maxLatest   = 200
	maxPaths    = 25
	maxPolicies = 1000
	maxNames    = 10_000 // of clients
	maxTexts    = 100    // of robots.txt files
	maxSteps    = 120    // of the timeline
)

// tally counts requests by their outcome.
type tally struct {
	Requests, Fetched, Refused, Delayed, Failed, Local int64

	Withheld   int64 // of Fetched, without the crawler receiving the response
	Disallowed int64 // sent although robots.txt disallows them
	Unknown    int64 // sent, and no robots.txt is kept that could decide

	Waited time.Duration
	Bytes  int64
}

// The words for the outcome of a request.
const (
	fetched  = "fetched"  // sent to the site
	withheld = "withheld" // sent to the site, which does not permit the purpose in the header of its response
	ignored  = "ignored"  // sent to the site although robots.txt disallows it
	refused  = "refused"  // not sent
	delayed  = "delayed"  // told to come back later, and not sent
	failed   = "failed"   // sent without an answer, or not sent because of a fault
	local    = "local"    // answered without the site: a robots.txt
)

func outcome(r *audit.Record, v verdict) string {
	switch {
	case r.Decision == policy.Deny && r.ByHeader():
		return withheld
	case r.Decision == policy.Deny:
		return refused
	case r.Decision == policy.Throttle:
		return delayed
	case r.Decision == policy.Error, r.Reason == policy.ReasonUpstream:
		return failed
	case r.SentAt.IsZero():
		return local
	case v == disallowed:
		return ignored
	}
	return fetched
}

func (t *tally) add(r *audit.Record, v verdict) {
	t.Requests++
	t.Waited += time.Duration(r.Waited)
	switch {
	case !isSent(r):
	case v == disallowed:
		t.Disallowed++
	case v == unknown:
		t.Unknown++
	}
	switch outcome(r, v) {
	case refused:
		t.Refused++
	case delayed:
		t.Delayed++
	case failed:
		t.Failed++
	case local:
		t.Local++
	case withheld:
		t.Fetched++
		t.Withheld++
		return // the bytes are those of the refusal
	default:
		t.Fetched++
	}
	if !r.SentAt.IsZero() {
		t.Bytes += r.Bytes
	}
}

// client is a crawler: a client with a User-Agent.
type client struct {
	Name, Purpose, UserAgent, Group string
	tally
	First, Last time.Time
}

// note is a deviation, an intervention or an exemption, with the requests that it concerned.
type note struct {
	Kind, Text  string
	Requests    int64
	First, Last time.Time
}

// gathering collects facts in one pass.
type gathering struct {
	facts
	clients  map[[4]string]*client
	notes    map[[2]string]*note
	causes   map[[2]string]*note
	deciders map[deciderKey]int64
	policies map[string]bool
	lost     map[string]bool // SHA-256 of the robots.txt files that are not kept
	agents   map[string]bool
	names    map[string]bool // of clients
}

type deciderKey struct {
	version *version
	line    int
	rule    string
	outcome string
}

func gather(ctx context.Context, r audit.Reader, o Options) (*facts, error) {
	g := &gathering{
		clients: map[[4]string]*client{}, notes: map[[2]string]*note{}, causes: map[[2]string]*note{},
		deciders: map[deciderKey]int64{}, policies: map[string]bool{}, lost: map[string]bool{}, agents: map[string]bool{},
		names: map[string]bool{},
	}
	var err error
	if g.files, err = newRobotsFiles(ctx, r, o.Host); err != nil {
		return nil, err
	}
	for rec, err := range r.Records(ctx, o.filter()) {
		if err != nil {
			return nil, err
		}
		if err := g.add(ctx, rec); err != nil {
			return nil, err
		}
	}
	g.Clients = slices.SortedFunc(values(g.clients), func(a, b client) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UserAgent, b.UserAgent),
			cmp.Compare(a.Purpose, b.Purpose), cmp.Compare(a.Group, b.Group))
	})
	g.Notes, g.Ignored = sortedNotes(g.notes), sortedNotes(g.causes)
	g.Crawlers = int64(len(g.agents))
	g.ClientNames = slices.Sorted(maps.Keys(g.names))
	slices.Sort(g.Instances)
	g.addVersions(o)
	err = errors.Join(g.addPolicies(ctx, r), g.addSums(ctx, r, o), g.addSpacing(ctx, r, o), g.addReplay(ctx, r, o))
	return &g.facts, err
}

func sortedNotes(notes map[[2]string]*note) []note {
	return slices.SortedFunc(values(notes), func(a, b note) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Text, b.Text))
	})
}

func values[K comparable, V any](m map[K]*V) func(yield func(V) bool) {
	return func(yield func(V) bool) {
		for v := range maps.Values(m) {
			if !yield(*v) {
				return
			}
		}
	}
}

func (g *gathering) add(ctx context.Context, r *audit.Record) error {
	if r.Via == audit.Robots {
		g.Own++
	} else if err := g.addRequest(ctx, r); err != nil {
		return err
	}
	if r.EndedAt.IsZero() {
		g.Open++
	}
	if instance := int(r.ID) & (audit.Instances - 1); !slices.Contains(g.Instances, instance) {
		g.Instances = append(g.Instances, instance)
	}
	if r.PolicySHA256 != "" && len(g.policies) < maxPolicies {
		g.policies[r.PolicySHA256] = true
	}
	if r.RobotsSHA256 != "" && len(g.lost) < maxPolicies {
		if v := g.files.of(r); v == nil || v.Missing {
			g.lost[r.RobotsSHA256] = true
		}
	}
	for d := range strings.SplitSeq(r.Deviation, ",") {
		g.note("deviation", d, r)
	}
	for i := range strings.SplitSeq(r.Intervention, ";") {
		g.note("intervention", strings.TrimSpace(i), r)
	}
	g.note("exemption", r.Exemption, r)
	if r.ByHeader() {
		g.note("preference", strings.TrimPrefix(r.Rule, policy.HeaderRule)+" is not for the purpose "+r.Purpose, r)
	}
	return nil
}

func (g *gathering) addRequest(ctx context.Context, r *audit.Record) error {
	v, err := g.files.verdict(ctx, r)
	if err != nil {
		return err
	}
	if g.First.IsZero() {
		g.First = r.Time
	}
	g.Last = r.Time
	g.Total.add(r, v)
	g.client(r).add(r, v)
	g.agents[r.Agent] = true
	if len(g.names) < maxNames {
		g.names[r.Client] = true
	}
	kept := *r
	shown := request{&kept, outcome(r, v), ""}
	if v == disallowed && isSent(r) {
		kind, text := ignoredBy(r)
		addNote(g.causes, kind, text, r)
		shown.Cause = strings.TrimSuffix(kind+": "+text, ": ")
		addLatest(&g.LatestIgnored, shown)
	}
	addLatest(&g.Latest, shown)
	if r.Rule == "" || r.ByHeader() {
		return nil
	}
	key := deciderKey{g.files.of(r), r.RuleLine, r.Rule, outcome(r, v)}
	if _, known := g.deciders[key]; known || len(g.deciders) < maxDeciders {
		g.deciders[key]++
	}
	return nil
}

// addLatest adds r, in place of the first one if there are maxLatest.
func addLatest(list *[]request, r request) {
	if len(*list) == maxLatest {
		*list = slices.Delete(*list, 0, 1)
	}
	*list = append(*list, r)
}

// ignoredBy returns why a request was sent although robots.txt disallows it.
func ignoredBy(r *audit.Record) (kind, text string) {
	switch {
	case r.Exemption != "" && r.Decision != policy.WouldDeny: // else an entry denies too
		return "exemption", r.Exemption
	case strings.Contains(r.Intervention, string(policy.Bypass)):
		return "bypass", r.Intervention
	case r.Mode == policy.Off.String():
		return "mode off", ""
	case r.Mode == policy.Report.String():
		return "mode report", ""
	}
	return "no recorded cause", ""
}

// client returns the crawler of r, with the User-Agent that the site saw. Beyond maxClients all share one.
func (g *gathering) client(r *audit.Record) *client {
	key := [4]string{r.Client, r.Purpose, cmp.Or(r.SentUserAgent, r.UserAgent), r.GroupAgents}
	if g.clients[key] == nil && len(g.clients) >= maxClients {
		key = [4]string{"(all others)"}
	}
	c := g.clients[key]
	if c == nil {
		c = &client{Name: key[0], Purpose: key[1], UserAgent: key[2], Group: key[3], First: r.Time}
		g.clients[key] = c
	}
	c.Last = r.Time
	return c
}

func (g *gathering) note(kind, text string, r *audit.Record) {
	if text != "" {
		addNote(g.notes, kind, text, r)
	}
}

func addNote(notes map[[2]string]*note, kind, text string, r *audit.Record) {
	key := [2]string{kind, text}
	n := notes[key]
	if n == nil && len(notes) >= maxNotes {
		key = [2]string{kind, "(all others)"}
		n = notes[key]
	}
	if n == nil {
		n = &note{Kind: key[0], Text: key[1], First: r.Time}
		notes[key] = n
	}
	n.Requests++
	n.Last = r.Time
}

// addVersions adds the versions of robots.txt that were in force in the period.
func (g *gathering) addVersions(o Options) {
	for _, v := range g.files.all {
		ended := !v.Until.IsZero() && !v.LastSeen.After(v.Until) && v.LastSeen.Before(o.Since)
		begins := !o.Until.IsZero() && !v.FirstSeen.Before(o.Until)
		if ended || begins {
			continue
		}
		v.Deciders = g.decidersOf(v)
		g.Versions = append(g.Versions, v)
	}
	for _, sha := range slices.Sorted(maps.Keys(g.lost)) {
		g.Lost = append(g.Lost, "the robots.txt with the SHA-256 "+sha)
	}
	slices.SortStableFunc(g.Versions, func(a, b *version) int {
		return cmp.Or(cmp.Compare(a.Origin.String(), b.Origin.String()), cmp.Compare(b.Number, a.Number))
	})
}

// decidersOf returns the rules of a version that decided, in order of their lines.
func (g *gathering) decidersOf(v *version) (deciders []decider) {
	for key, n := range g.deciders {
		if key.version != v {
			continue
		}
		i := slices.IndexFunc(deciders, func(d decider) bool { return d.Line == key.line && d.Rule == key.rule })
		if i < 0 {
			i = len(deciders)
			deciders = append(deciders, decider{Line: key.line, Rule: key.rule, Requests: map[string]int64{}})
		}
		deciders[i].Requests[key.outcome] += n
	}
	slices.SortFunc(deciders, func(a, b decider) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Rule, b.Rule))
	})
	return deciders
}

func (g *gathering) addPolicies(ctx context.Context, r audit.Reader) error {
	for _, sha := range slices.Sorted(maps.Keys(g.policies)) {
		_, err := r.Policy(ctx, sha)
		switch {
		case errors.Is(err, audit.ErrNoPolicy):
			g.Lost = append(g.Lost, "the policy with the SHA-256 "+sha)
		case err != nil:
			return err
		default:
			g.Policies = append(g.Policies, sha)
		}
	}
	return nil
}

func (g *gathering) addSums(ctx context.Context, r audit.Reader, o Options) (err error) {
	f := o.filter()
	f.Vias, f.Limit = nil, maxPaths
	if g.Paths, err = r.Sums(ctx, f, audit.ByPath); err != nil || g.Last.IsZero() {
		return err
	}
	f.Limit = 0
	f.Since, f.Until = cmpTime(f.Since, g.First), cmpTime(f.Until, g.Last.Add(1))
	g.Step = step(f.Until.Sub(f.Since))
	f.Since = f.Since.Truncate(g.Step)
	g.Timeline, err = r.Timeline(ctx, f, g.Step)
	return err
}

// cmpTime returns t, or instead if t is zero.
func cmpTime(t, instead time.Time) time.Time {
	if t.IsZero() {
		return instead
	}
	return t
}

// step returns the step of a timeline over d: as few as fit the page.
func step(d time.Duration) time.Duration {
	steps := []time.Duration{
		time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
		24 * time.Hour, 7 * 24 * time.Hour, 28 * 24 * time.Hour,
	}
	for _, s := range steps {
		if d/s < maxSteps {
			return s
		}
	}
	return steps[len(steps)-1]
}

// addSpacing measures the gaps.
func (g *gathering) addSpacing(ctx context.Context, r audit.Reader, o Options) (err error) {
	f := audit.Filter{Host: o.Host, Since: o.Since, Until: o.Until}
	g.Gaps = &series{}
	g.Spacing, err = proof.SpacingOf(proof.Gaps(ctx, r, f), g.Gaps.add)
	return err
}

// addReplay decides all requests again.
func (g *gathering) addReplay(ctx context.Context, r audit.Reader, o Options) (err error) {
	g.Replay, err = proof.Replay(ctx, r, o.filter(), proof.ReplayOptions{})
	return err
}

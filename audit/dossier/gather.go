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
	maxSteps    = 120 // of the timeline
)

// tally counts requests by their outcome.
type tally struct {
	Requests, Fetched, Refused, Delayed, Failed, Local int64

	Waited time.Duration
	Bytes  int64
}

// The words for the outcome of a request.
const (
	fetched = "fetched" // sent to the site
	refused = "refused" // not sent
	delayed = "delayed" // told to come back later, and not sent
	failed  = "failed"  // sent without an answer, or not sent because of a fault
	local   = "local"   // answered without the site: a robots.txt
)

func outcome(r *audit.Record) string {
	switch {
	case r.Decision == policy.Deny:
		return refused
	case r.Decision == policy.Throttle:
		return delayed
	case r.Decision == policy.Error, r.Reason == policy.ReasonUpstream:
		return failed
	case r.SentAt.IsZero():
		return local
	}
	return fetched
}

func (t *tally) add(r *audit.Record) {
	t.Requests++
	switch outcome(r) {
	case refused:
		t.Refused++
	case delayed:
		t.Delayed++
	case failed:
		t.Failed++
	case local:
		t.Local++
	default:
		t.Fetched++
	}
	t.Waited += time.Duration(r.Waited)
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
	deciders map[deciderKey]int64
	policies map[string]bool
	versions map[string]bool // SHA-256 of the robots.txt files
}

type deciderKey struct {
	sha     string
	line    int
	rule    string
	outcome string
}

func gather(ctx context.Context, r audit.Reader, o Options) (*facts, error) {
	g := &gathering{
		clients: map[[4]string]*client{}, notes: map[[2]string]*note{}, deciders: map[deciderKey]int64{},
		policies: map[string]bool{}, versions: map[string]bool{},
	}
	for rec, err := range r.Records(ctx, o.filter()) {
		if err != nil {
			return nil, err
		}
		g.add(rec)
	}
	g.Clients = slices.SortedFunc(values(g.clients), func(a, b client) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UserAgent, b.UserAgent),
			cmp.Compare(a.Purpose, b.Purpose), cmp.Compare(a.Group, b.Group))
	})
	g.Notes = slices.SortedFunc(values(g.notes), func(a, b note) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Text, b.Text))
	})
	slices.Sort(g.Instances)
	err := errors.Join(g.addVersions(ctx, r, o), g.addPolicies(ctx, r), g.addSums(ctx, r, o), g.addSpacing(ctx, r, o), g.addReplay(ctx, r, o))
	return &g.facts, err
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

func (g *gathering) add(r *audit.Record) {
	if r.Via == audit.Robots {
		g.Own++
	} else {
		g.addRequest(r)
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
	if r.RobotsSHA256 != "" && len(g.versions) < maxPolicies {
		g.versions[r.RobotsSHA256] = true
	}
	for d := range strings.SplitSeq(r.Deviation, ",") {
		g.note("deviation", d, r)
	}
	for i := range strings.SplitSeq(r.Intervention, ";") {
		g.note("intervention", strings.TrimSpace(i), r)
	}
	g.note("exemption", r.Exemption, r)
}

func (g *gathering) addRequest(r *audit.Record) {
	if g.First.IsZero() {
		g.First = r.Time
	}
	g.Last = r.Time
	g.Total.add(r)
	g.client(r).add(r)
	if len(g.Latest) == maxLatest {
		g.Latest = slices.Delete(g.Latest, 0, 1)
	}
	kept := *r
	g.Latest = append(g.Latest, &kept)
	if r.Rule == "" {
		return
	}
	key := deciderKey{r.RobotsSHA256, r.RuleLine, r.Rule, outcome(r)}
	if _, known := g.deciders[key]; known || len(g.deciders) < maxDeciders {
		g.deciders[key]++
	}
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
	if text == "" {
		return
	}
	key := [2]string{kind, text}
	n := g.notes[key]
	if n == nil && len(g.notes) >= maxNotes {
		key = [2]string{kind, "(all others)"}
		n = g.notes[key]
	}
	if n == nil {
		n = &note{Kind: key[0], Text: key[1], First: r.Time}
		g.notes[key] = n
	}
	n.Requests++
	n.Last = r.Time
}

// addVersions adds the versions of robots.txt that were in force in the period.
func (g *gathering) addVersions(ctx context.Context, r audit.Reader, o Options) error {
	files, err := r.Files(ctx, o.Host)
	if err != nil {
		return err
	}
	last := map[string]*version{}
	for _, f := range files {
		if !o.Until.IsZero() && !f.FirstSeen.Before(o.Until) {
			continue
		}
		number := 1
		before := last[f.Origin.String()]
		if before != nil {
			number, before.Until = before.Number+1, f.FirstSeen
		}
		body, err := r.Body(ctx, f.SHA256)
		if err != nil && f.SHA256 != "" && !errors.Is(err, audit.ErrNoFile) {
			return err
		}
		v := newVersion(f, number, body)
		v.Missing = f.SHA256 != "" && err != nil
		delete(g.versions, f.SHA256)
		v.Deciders = g.decidersOf(f.SHA256)
		last[f.Origin.String()] = v
		g.Versions = append(g.Versions, v)
	}
	g.Versions = slices.DeleteFunc(g.Versions, func(v *version) bool {
		return !v.Until.IsZero() && !v.LastSeen.After(v.Until) && v.LastSeen.Before(o.Since)
	})
	for _, sha := range slices.Sorted(maps.Keys(g.versions)) {
		g.Lost = append(g.Lost, "the robots.txt with the SHA-256 "+sha)
	}
	slices.SortStableFunc(g.Versions, func(a, b *version) int {
		return cmp.Or(cmp.Compare(a.Origin.String(), b.Origin.String()), cmp.Compare(b.Number, a.Number))
	})
	return nil
}

// decidersOf returns the rules of a robots.txt that decided, in order of their lines.
func (g *gathering) decidersOf(sha string) (deciders []decider) {
	for key, n := range g.deciders {
		if key.sha != sha {
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

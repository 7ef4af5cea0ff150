package proof

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
)

// Effect is a change of the robots.txt of an origin, with what it decides otherwise of the requests that were recorded
// since effectTime before it.
type Effect struct {
	Host   string    `json:"host"`
	Origin string    `json:"origin"`
	Time   time.Time `json:"time"`
	Before Text      `json:"before"`
	After  Text      `json:"after"`
	Diff   string    `json:"diff"` // in the unified format, of at most diffSize bytes

	Judged   int64         `json:"decisions"`    // requests that both texts decide, the newest first
	Refused  int64         `json:"would_refuse"` // of these, that only the text before permits
	Allowed  int64         `json:"would_allow"`  // of these, that only the text after permits
	Partial  bool          `json:"partial"`      // there may be older requests, which were not judged
	Delays   []DelayChange `json:"delays"`       // of crawlers with such requests
	Examples []Example     `json:"examples"`     // the newest requests that are decided otherwise, one for each path and crawler
}

// Text is one state of a robots.txt.
type Text struct {
	State     string    `json:"state"`            // see robots.Snapshot.State
	SHA256    string    `json:"sha256,omitempty"` // empty if there is no file
	FirstSeen time.Time `json:"first_seen,omitzero"`
}

// DelayChange is the Delay of a crawler before and after a change, in seconds; 0 means none.
type DelayChange struct {
	Agent  string  `json:"agent"`
	Before float64 `json:"before_s"`
	After  float64 `json:"after_s"`
}

// Example is a request that is decided otherwise.
type Example struct {
	Path   string `json:"path"` // and the query, as recorded
	Agent  string `json:"agent"`
	Before Ruling `json:"before"`
	After  Ruling `json:"after"`
}

// Ruling is what a text decides about a request, and the line that decides.
type Ruling struct {
	Allowed bool   `json:"allowed"`
	Line    int    `json:"line,omitempty"` // 0 if no rule matches
	Rule    string `json:"rule,omitempty"`
}

// Limits of an Effect.
const (
	effectTime   = 30 * 24 * time.Hour
	effectJudged = 100_000
	effectWork   = 20 * time.Second // to judge
	effectLists  = 10               // entries of Delays, and of Examples
	diffSize     = 64 << 10
	maxChanges   = 100 // of an origin
)

// Alters reports whether a recorded request is decided otherwise.
func (e *Effect) Alters() bool { return e.Refused > 0 || e.Allowed > 0 }

// Past has the earlier robots.txt files. Its lists have at most limit entries, the latest first.
type Past interface {
	Versions(ctx context.Context, o origin.Origin, limit int) ([]robots.Version, error)
	Changes(ctx context.Context, o origin.Origin, limit int) ([]robots.Change, error)
	Body(ctx context.Context, sha256 string) ([]byte, error)
}

// Effects returns the changes of o's robots.txt that were seen since a time, the oldest first. A failure of the site is
// no change: the texts before and after it are compared. Requests are judged as by Changes.
// If a text is not kept, it returns the other changes with an error that wraps audit.ErrNoFile.
func Effects(ctx context.Context, past Past, r audit.Reader, o origin.Origin, since time.Time) ([]*Effect, error) {
	changes, err := past.Changes(ctx, o, maxChanges)
	if err != nil {
		return nil, err
	}
	var effects []*Effect
	var missing error
	for i, c := range changes {
		if c.Time.Before(since) {
			break
		}
		before, found := textBefore(changes[i:])
		after := Text{State: c.NewState, SHA256: c.NewSHA256}
		if !found || after.failed() || before.decides() == after.decides() {
			continue
		}
		e := &Effect{
			Host: o.Host(), Origin: o.String(), Time: c.Time, Before: before, After: after,
			Delays: []DelayChange{}, Examples: []Example{},
		}
		err := e.judge(ctx, past, r, o)
		if errors.Is(err, audit.ErrNoFile) {
			missing = fmt.Errorf("judging by the robots.txt of %s: %w", o, err)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("judging by the robots.txt of %s: %w", o, err)
		}
		effects = append(effects, e)
	}
	slices.Reverse(effects)
	return effects, missing
}

// textBefore returns the last text before the first of changes that the site had given. The list begins with the latest.
func textBefore(changes []robots.Change) (t Text, found bool) {
	for _, c := range changes {
		if t = (Text{State: c.OldState, SHA256: c.OldSHA256}); !t.failed() {
			return t, true
		}
	}
	return t, false
}

// failed reports whether t stands for a failure of the site. A web page without a body is refused by the configuration.
func (t Text) failed() bool { return t.State == "unreachable" || t.State == "html" && t.SHA256 == "" }

// decides returns what t decides by: the SHA-256 of its body, or the state without one.
func (t Text) decides() string {
	if t.SHA256 == "" {
		return t.State
	}
	return t.SHA256
}

// file returns t as a version of the robots.txt of o.
func (t *Text) file(ctx context.Context, past Past, r audit.Reader, o origin.Origin) (*audit.File, error) {
	f := &audit.File{State: t.State, Answer: robots.Answer{Origin: o, SHA256: t.SHA256}}
	if t.SHA256 == "" {
		f.Availability = robots.Unavailable
		return f, nil
	}
	f.Availability, f.Truncated = robots.Found, t.State == "oversize"
	versions, err := past.Versions(ctx, o, maxChanges)
	if err != nil {
		return nil, err
	}
	for _, v := range versions {
		if v.SHA256 == t.SHA256 {
			t.FirstSeen = v.FirstSeen
			break
		}
	}
	if f.Body, err = past.Body(ctx, t.SHA256); err != nil { // another instance has fetched it
		f.Body, err = r.Body(ctx, t.SHA256)
	}
	if t.State == "html" && errors.Is(err, audit.ErrNoFile) {
		return f, nil // Past need not keep web pages, which differ at every fetch and have no rules
	}
	return f, err
}

// judge compares the texts, and the decisions by them about the recorded requests.
func (e *Effect) judge(ctx context.Context, past Past, r audit.Reader, o origin.Origin) error {
	before, err := e.Before.file(ctx, past, r, o)
	if err != nil {
		return err
	}
	after, err := e.After.file(ctx, past, r, o)
	if err != nil {
		return err
	}
	e.Diff = shortened(unified(e.Before.name(), before.Body, e.After.name(), after.Body))
	var judges [2]*Judge
	for i, f := range []*audit.File{before, after} {
		if judges[i], err = NewJudge(f); err != nil {
			return err
		}
	}
	return e.judgeRecords(ctx, r, judges)
}

// name returns the name of t in a diff.
func (t Text) name() string {
	if t.SHA256 == "" {
		return t.State
	}
	return t.SHA256[:min(len(t.SHA256), 12)]
}

// shortened returns diff, or its first lines if it is long.
func shortened(diff string) string {
	if len(diff) <= diffSize {
		return diff
	}
	return diff[:strings.LastIndexByte(diff[:diffSize], '\n')+1]
}

// judgeRecords judges the newest requests of the host, effectJudged of them and for effectWork at most.
func (e *Effect) judgeRecords(ctx context.Context, r audit.Reader, judges [2]*Judge) error {
	limited, cancel := context.WithTimeout(ctx, effectWork)
	defer cancel()
	f := audit.Filter{Host: e.Host, Since: e.Time.Add(-effectTime), Until: e.Time, Newest: true, Limit: effectJudged}
	usage, seen := usages{}, map[string]bool{}
	n := 0
	for rec, err := range r.Records(limited, f) {
		if err == nil {
			n++
			err = e.judgeRecord(limited, r, judges, usage, seen, rec)
		}
		if limited.Err() != nil && ctx.Err() == nil {
			e.Partial = true
			return nil
		}
		if err != nil {
			return err
		}
	}
	e.Partial = n == effectJudged
	return nil
}

// judgeRecord judges rec. The map seen has the crawlers in Delays, and the crawlers and paths in Examples.
func (e *Effect) judgeRecord(
	ctx context.Context, r audit.Reader, judges [2]*Judge, known usages, seen map[string]bool, rec *audit.Record,
) error {
	if originOf(rec) != e.Origin {
		return nil
	}
	usage, err := known.of(ctx, r, rec.PolicySHA256)
	if err != nil {
		return err
	}
	var d [2]policy.Decision
	for i, j := range judges {
		if d[i], err = j.decide(rec, usage); errors.Is(err, ErrUnjudged) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	e.count(rec, d[0], d[1], seen)
	return nil
}

// count adds the decisions about rec before and after the change.
func (e *Effect) count(rec *audit.Record, before, after policy.Decision, seen map[string]bool) {
	e.Judged++
	if agent := rec.Agent; before.Delay != after.Delay && len(e.Delays) < effectLists && !seen[agent] {
		seen[agent] = true
		e.Delays = append(e.Delays, DelayChange{agent, before.Delay.Seconds(), after.Delay.Seconds()})
	}
	was, is := ruling(before), ruling(after)
	switch {
	case was.Allowed == is.Allowed:
		return
	case was.Allowed:
		e.Refused++
	default:
		e.Allowed++
	}
	if key := rec.Agent + " " + target(rec); len(e.Examples) < effectLists && !seen[key] {
		seen[key] = true
		e.Examples = append(e.Examples, Example{target(rec), rec.Agent, was, is})
	}
}

func ruling(d policy.Decision) Ruling {
	return Ruling{d.Action == policy.Forward, d.Verdict.Line, d.Verdict.Rule}
}

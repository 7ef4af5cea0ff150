package proof

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
)

// Change is a version of the robots.txt of an origin, and its difference to the version before.
type Change struct {
	Origin    string    `json:"origin"`
	Version   int       `json:"version"` // of this origin, from 1
	FirstSeen time.Time `json:"first_seen"`
	LastSeen  time.Time `json:"last_seen"`
	Status    int       `json:"status"` // of the response; 0: there was none
	State     string    `json:"state"`  // see robots.Snapshot.State
	SHA256    string    `json:"sha256"` // empty if there is no file
	Added     []Line    `json:"added"`
	Removed   []Line    `json:"removed"`
	Diff      string    `json:"diff"` // in the unified format

	Judged  int64 `json:"decisions"`     // recorded requests to the origin that both versions decide
	Refused int64 `json:"would_refuse"`  // of these, that the version before permits and this one refuses
	Allowed int64 `json:"would_allow"`   // of these, that the version before refuses and this one permits
	Missing bool  `json:"body_not_kept"` // of this version or the one before, so that nothing could be compared
}

// Line is a line of a robots.txt.
type Line struct {
	Line int    `json:"line"` // number, from 1
	Text string `json:"text"`
}

// Changes returns all versions of the robots.txt files of f.Host, a host and not a pattern, the newest of each origin
// first. It judges the recorded requests that f selects by each version, without exemptions, interventions and modes,
// to count how many of them each change decides otherwise. Preferences count if the policy of the request enforced them
// and is kept. f.Since and f.Until select requests, not versions.
func Changes(ctx context.Context, r audit.Reader, f audit.Filter) ([]Change, error) {
	files, err := r.Files(ctx, f.Host)
	if err != nil {
		return nil, err
	}
	byOrigin := map[string]*history{}
	var histories []*history
	for i := range files {
		name := files[i].Origin.String()
		h := byOrigin[name]
		if h == nil {
			h = &history{origin: name, known: map[judgeKey]*Judge{}}
			byOrigin[name], histories = h, append(histories, h)
		}
		if err := h.add(ctx, r, &files[i]); err != nil {
			return nil, err
		}
	}
	usage := usages{}
	for rec, err := range r.Records(ctx, f) {
		if err != nil {
			return nil, err
		}
		h := byOrigin[originOf(rec)]
		if h == nil {
			continue
		}
		u, err := usage.of(ctx, r, rec.PolicySHA256)
		if err == nil {
			err = h.judge(rec, u)
		}
		if err != nil {
			return nil, err
		}
	}
	var changes []Change
	for _, h := range histories {
		slices.Reverse(h.changes)
		changes = append(changes, h.changes...)
	}
	return changes, nil
}

// usages are those of policies, by their SHA-256.
type usages map[string]policy.Usage

func (u usages) of(ctx context.Context, r audit.Reader, sha string) (policy.Usage, error) {
	if usage, ok := u[sha]; ok || sha == "" {
		return usage, nil
	}
	text, err := r.Policy(ctx, sha)
	if errors.Is(err, audit.ErrNoPolicy) {
		u[sha] = policy.UsageRecord
		return policy.UsageRecord, nil
	}
	if err != nil {
		return policy.UsageRecord, err
	}
	p, err := policy.Parse(text)
	if err != nil {
		return policy.UsageRecord, fmt.Errorf("the policy %s: %w", sha, err)
	}
	u[sha] = p.Usage()
	return p.Usage(), nil
}

// history has the versions of one origin, the oldest first.
type history struct {
	origin  string
	changes []Change
	judges  []*Judge            // of the changes; nil without a body
	known   map[judgeKey]*Judge // a file that returns to an earlier text is judged once
	last    []byte              // body
}

// judgeKey identifies what a judge decides by.
type judgeKey struct {
	sha256, state string
	status        int
}

// add adds the next version.
func (h *history) add(ctx context.Context, r audit.Reader, f *audit.File) error {
	c := Change{
		Origin: h.origin, Version: len(h.changes) + 1, FirstSeen: f.FirstSeen, LastSeen: f.LastSeen,
		Status: f.Status, State: f.State, SHA256: f.SHA256, Added: []Line{}, Removed: []Line{},
	}
	var err error
	if f.SHA256 != "" {
		f.Body, err = r.Body(ctx, f.SHA256)
	}
	key := judgeKey{f.SHA256, f.State, f.Status}
	j := h.known[key]
	switch {
	case err == nil && j == nil:
		j, err = NewJudge(f)
		h.known[key] = j
	case errors.Is(err, audit.ErrNoFile):
		c.Missing, err = true, nil
	}
	if err != nil {
		return err
	}
	if n := len(h.judges); n > 0 {
		c.Missing = c.Missing || h.judges[n-1] == nil
		if !c.Missing {
			c.compare(h.last, f.Body)
		}
	}
	h.changes, h.judges, h.last = append(h.changes, c), append(h.judges, j), f.Body
	return nil
}

// judge judges rec by all versions.
func (h *history) judge(rec *audit.Record, usage policy.Usage) error {
	before := false
	for i, j := range h.judges {
		if j == nil {
			continue
		}
		allowed, err := j.Allows(rec, usage)
		if errors.Is(err, ErrUnjudged) {
			return nil
		}
		if err != nil {
			return err
		}
		if c := &h.changes[i]; i > 0 && !c.Missing {
			c.Judged++
			switch {
			case before && !allowed:
				c.Refused++
			case allowed && !before:
				c.Allowed++
			}
		}
		before = allowed
	}
	return nil
}

func originOf(r *audit.Record) string {
	o, err := newOrigin(r)
	if err != nil {
		return ""
	}
	return o.String()
}

// lineEnds makes all ends of lines the same (RFC 9309 section 2.2), so that a diff shows no lines that say the same.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// compare sets the difference between the texts of two versions.
func (c *Change) compare(before, after []byte) {
	c.Diff = unified(fmt.Sprintf("version %d", c.Version-1), before, fmt.Sprintf("version %d", c.Version), after)
	if c.Diff == "" {
		return
	}
	var oldLine, newLine int
	for line := range strings.Lines(c.Diff[strings.Index(c.Diff, "@@"):]) {
		body := strings.TrimSuffix(line[1:], "\n")
		switch line[0] {
		case '@':
			oldLine, newLine = hunk(line)
		case '-':
			c.Removed = append(c.Removed, Line{oldLine, body})
			oldLine++
		case '+':
			c.Added = append(c.Added, Line{newLine, body})
			newLine++
		default:
			oldLine++
			newLine++
		}
	}
}

// unified returns the difference between two texts in the unified format. It is empty if they have the same lines.
func unified(oldName string, before []byte, newName string, after []byte) string {
	text := diff.Diff(oldName, lines(before), newName, lines(after))
	_, text, _ = bytes.Cut(text, []byte("\n")) // after the line "diff version 1 version 2"
	return string(text)
}

// lines returns body with one form of line ends, the last one included.
func lines(body []byte) []byte {
	text := lineEnds.Replace(string(body))
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return []byte(text)
}

// hunk returns the first lines of a hunk with the header "@@ -3,4 +3,5 @@".
func hunk(header string) (oldLine, newLine int) {
	var oldCount, newCount int
	_, _ = fmt.Sscanf(header, "@@ -%d,%d +%d,%d @@", &oldLine, &oldCount, &newLine, &newCount) // as diff.Diff writes it
	return oldLine, newLine
}

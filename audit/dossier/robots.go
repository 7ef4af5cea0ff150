package dossier

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/proof"
	"github.com/robotsproxy/robotsproxy/policy"
)

// robotsFiles are the versions of the robots.txt of a host, which say what they disallow. Their bodies are read when they
// are needed: a site may have a new one for each fetch.
type robotsFiles struct {
	reader audit.Reader
	all    []*version // in order of their first fetches
	judges map[*version]*proof.Judge
	asked  fetchKey // by of
	found  *version
}

// maxJudges bounds the versions that are parsed in memory.
const maxJudges = 32

// fetchKey identifies the fetch on which a record rests.
type fetchKey struct {
	scheme, host  string
	port          uint16
	sha256, state string
	fetched       time.Time
}

// newRobotsFiles reads the versions of the robots.txt of a host.
func newRobotsFiles(ctx context.Context, r audit.Reader, host string) (*robotsFiles, error) {
	files, err := r.Files(ctx, host)
	if err != nil {
		return nil, err
	}
	f := &robotsFiles{reader: r, judges: map[*version]*proof.Judge{}}
	last := map[string]*version{}
	missing := map[string]bool{"": false}
	for _, file := range files {
		number := 1
		before := last[file.Origin.String()]
		if before != nil {
			number, before.Until = before.Number+1, file.FirstSeen
		}
		if _, known := missing[file.SHA256]; !known {
			_, err := r.Body(ctx, file.SHA256)
			if err != nil && !errors.Is(err, audit.ErrNoFile) {
				return nil, err
			}
			missing[file.SHA256] = err != nil
		}
		v := newVersion(file, number, missing[file.SHA256])
		last[file.Origin.String()] = v
		f.all = append(f.all, v)
	}
	return f, nil
}

// body returns the body of v, which is empty if it is not kept.
func (f *robotsFiles) body(ctx context.Context, v *version) ([]byte, error) {
	if v.SHA256 == "" || v.Missing {
		return nil, nil
	}
	return f.reader.Body(ctx, v.SHA256)
}

// of returns the version on which r rests, or nil if it is not kept.
func (f *robotsFiles) of(r *audit.Record) *version {
	key := fetchKey{r.Scheme, r.Host, r.Port, r.RobotsSHA256, r.RobotsState, r.RobotsFetchedAt}
	if key != f.asked {
		f.asked, f.found = key, f.find(r)
	}
	return f.found
}

func (f *robotsFiles) find(r *audit.Record) (found *version) {
	for _, v := range slices.Backward(f.all) {
		if v.SHA256 != r.RobotsSHA256 || v.State != r.RobotsState || !v.isOf(r) {
			continue
		}
		if !v.Fetched.After(r.RobotsFetchedAt) {
			return v
		}
		found = v
	}
	return found
}

// before returns the last version that was read before r arrived, or nil. The proxy reads no robots.txt for a request
// in mode off.
func (f *robotsFiles) before(r *audit.Record) *version {
	for _, v := range slices.Backward(f.all) {
		if v.isOf(r) && !v.Fetched.After(r.Time) {
			return v
		}
	}
	return nil
}

// isOf reports whether v is a version of the robots.txt of r's origin.
func (v *version) isOf(r *audit.Record) bool {
	return v.Origin.Scheme() == r.Scheme && v.Origin.Host() == r.Host && v.Origin.Port() == r.Port
}

// verdict is the answer of a robots.txt to a recorded request.
type verdict uint8

const (
	unknown verdict = iota // no robots.txt is kept that could decide
	permitted
	disallowed
)

// verdict returns what robots.txt says about a request, with its preferences if the policy enforced them. It is
// computed anew for requests in mode report or off, whose decision may have another cause.
func (f *robotsFiles) verdict(ctx context.Context, r *audit.Record) (verdict, error) {
	enforced := r.Mode == policy.Enforce.String()
	switch {
	case r.RobotsState == "":
		return f.judge(ctx, f.before(r), policy.UsageRecord, r)
	case r.ByHeader(): // robots.txt came first
		return permitted, nil
	case r.Decision == policy.Exempt, enforced && r.Exemption != "":
		return disallowed, nil
	case r.Decision == policy.Allow && r.Reason == policy.ReasonReport: // without a robots.txt, no request is permitted
		return disallowed, nil
	case enforced, r.Decision == policy.Allow:
		return permitted, nil
	}
	v, err := f.judge(ctx, f.of(r), policy.UsageEnforce, r)
	if v == unknown && r.Decision == policy.WouldDeny && r.Exemption == "" {
		v = disallowed
	}
	return v, err
}

// judge returns the verdict of v, which may be nil.
func (f *robotsFiles) judge(ctx context.Context, v *version, usage policy.Usage, r *audit.Record) (verdict, error) {
	if v == nil || v.Missing {
		return unknown, nil
	}
	j, err := f.judgeBy(ctx, v)
	if err != nil {
		return unknown, err
	}
	allowed, err := j.Allows(r, usage)
	switch {
	case errors.Is(err, proof.ErrUnjudged):
		return unknown, nil
	case err != nil:
		return unknown, err
	case allowed:
		return permitted, nil
	}
	return disallowed, nil
}

// judgeBy returns the judge by v.
func (f *robotsFiles) judgeBy(ctx context.Context, v *version) (*proof.Judge, error) {
	if j := f.judges[v]; j != nil {
		return j, nil
	}
	file := v.File
	var err error
	if file.Body, err = f.body(ctx, v); err != nil {
		return nil, err
	}
	j, err := proof.NewJudge(&file)
	if err != nil {
		return nil, err
	}
	if len(f.judges) >= maxJudges {
		clear(f.judges)
	}
	f.judges[v] = j
	return j, nil
}

// isSent reports whether r is a request for a page that was sent to the site.
func isSent(r *audit.Record) bool {
	return r.Via != audit.Robots && !r.SentAt.IsZero() && r.Path != "/robots.txt"
}

// ignoredPath is the file of requests that were sent although robots.txt disallows them.
const ignoredPath = "sent-although-disallowed.csv"

// ignored returns the records of requests that were sent although robots.txt disallows them.
func (f *facts) ignored(
	ctx context.Context, records iter.Seq2[*audit.Record, error],
) iter.Seq2[*audit.Record, error] {
	return func(yield func(*audit.Record, error) bool) {
		for r, err := range records {
			v := unknown
			if err == nil && isSent(r) {
				v, err = f.files.verdict(ctx, r)
			}
			if (err != nil || v == disallowed) && !yield(r, err) || err != nil {
				return
			}
		}
	}
}

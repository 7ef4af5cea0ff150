package dossier

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/proof"
	"github.com/robotsproxy/robotsproxy/policy"
)

// robotsFiles are the versions of the robots.txt of a host, which say what they disallow.
type robotsFiles struct {
	all    []*version // in order of their first fetches
	bodies map[string][]byte
	judges map[*version]*proof.Judge
}

// newRobotsFiles reads the versions of the robots.txt of a host.
func newRobotsFiles(ctx context.Context, r audit.Reader, host string) (*robotsFiles, error) {
	files, err := r.Files(ctx, host)
	if err != nil {
		return nil, err
	}
	f := &robotsFiles{bodies: map[string][]byte{}, judges: map[*version]*proof.Judge{}}
	last := map[string]*version{}
	for _, file := range files {
		number := 1
		before := last[file.Origin.String()]
		if before != nil {
			number, before.Until = before.Number+1, file.FirstSeen
		}
		missing := false
		if file.SHA256 != "" {
			file.Body, missing, err = f.body(ctx, r, file.SHA256)
			if err != nil {
				return nil, err
			}
		}
		v := newVersion(file, number, missing)
		last[file.Origin.String()] = v
		f.all = append(f.all, v)
	}
	return f, nil
}

// body reads a body once: a file may return to an earlier one.
func (f *robotsFiles) body(ctx context.Context, r audit.Reader, sha string) (body []byte, missing bool, err error) {
	body, known := f.bodies[sha]
	if !known {
		body, err = r.Body(ctx, sha)
		switch {
		case err == nil:
			body = append([]byte{}, body...) // not nil if it is empty
		case !errors.Is(err, audit.ErrNoFile):
			return nil, false, err
		}
		f.bodies[sha] = body
	}
	return body, body == nil, nil
}

// of returns the version on which r rests, or nil if it is not kept.
func (f *robotsFiles) of(r *audit.Record) (found *version) {
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
func (f *robotsFiles) verdict(r *audit.Record) (verdict, error) {
	enforced := r.Mode == policy.Enforce.String()
	switch {
	case r.RobotsState == "":
		return f.judge(f.before(r), policy.UsageRecord, r)
	case r.Decision == policy.Exempt, enforced && r.Exemption != "":
		return disallowed, nil
	case r.Decision == policy.Allow && r.Reason == policy.ReasonReport: // without a robots.txt, no request is permitted
		return disallowed, nil
	case enforced, r.Decision == policy.Allow:
		return permitted, nil
	}
	v, err := f.judge(f.of(r), policy.UsageEnforce, r)
	if v == unknown && r.Decision == policy.WouldDeny && r.Exemption == "" {
		v = disallowed
	}
	return v, err
}

// judge returns the verdict of v, which may be nil.
func (f *robotsFiles) judge(v *version, usage policy.Usage, r *audit.Record) (verdict, error) {
	if v == nil || v.Missing {
		return unknown, nil
	}
	if f.judges[v] == nil {
		j, err := proof.NewJudge(&v.File)
		if err != nil {
			return unknown, err
		}
		f.judges[v] = j
	}
	allowed, err := f.judges[v].Allows(r, usage)
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

// isSent reports whether r is a request for a page that was sent to the site.
func isSent(r *audit.Record) bool {
	return r.Via != audit.Robots && !r.SentAt.IsZero() && r.Path != "/robots.txt"
}

// ignoredPath is the file of requests that were sent although robots.txt disallows them.
const ignoredPath = "sent-although-disallowed.csv"

// ignored returns the records of requests that were sent although robots.txt disallows them.
func (f *facts) ignored(records iter.Seq2[*audit.Record, error]) iter.Seq2[*audit.Record, error] {
	return func(yield func(*audit.Record, error) bool) {
		for r, err := range records {
			v := unknown
			if err == nil && isSent(r) {
				v, err = f.files.verdict(r)
			}
			if (err != nil || v == disallowed) && !yield(r, err) || err != nil {
				return
			}
		}
	}
}

package proof

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/rules"
)

// Judge decides what a version of a robots.txt says about recorded requests, without exemptions, interventions and
// modes: as policy.Policy.Judge does under a configuration that sets no more than the usage. It is for one goroutine.
type Judge struct {
	snap     *robots.Snapshot
	policies [2]*policy.Policy // by their policy.Usage

	judged   audit.ID // the last record
	decision policy.Decision
	err      error
}

// NewJudge returns a judge by f, which must have its body.
func NewJudge(f *audit.File) (*Judge, error) {
	j := &Judge{snap: robots.NewSnapshot(f.Answer)}
	for usage := range j.policies {
		p, err := policy.New(policy.Options{Mode: policy.Enforce, Usage: policy.Usage(usage)})
		if err != nil {
			return nil, err
		}
		j.policies[usage] = p
	}
	return j, nil
}

// ErrUnjudged marks records that no robots.txt decides: those of other requests than GET /path at an origin.
var ErrUnjudged = errors.New("the record has no request that a robots.txt decides")

// Allows reports whether the file permits the request of r under usage, or returns ErrUnjudged.
func (j *Judge) Allows(r *audit.Record, usage policy.Usage) (bool, error) {
	d, err := j.decide(r, usage)
	return d.Action == policy.Forward, err
}

// decide returns what the file decides about the request of r under usage, or ErrUnjudged.
func (j *Judge) decide(r *audit.Record, usage policy.Usage) (policy.Decision, error) {
	if j.judged != r.ID || r.ID == 0 {
		j.decision, j.err = j.judge(r, usage)
		j.judged = r.ID
	}
	return j.decision, j.err
}

func (j *Judge) judge(r *audit.Record, usage policy.Usage) (d policy.Decision, err error) {
	o, err := newOrigin(r)
	if err != nil {
		return d, ErrUnjudged
	}
	dialect, err := rules.ParseDialect(cmp.Or(r.Dialect, rules.DialectRFC9309.String()))
	if err != nil {
		return d, fmt.Errorf("record %s: %w", r.ID, err)
	}
	req := policy.Request{
		Client: policy.Client{Name: r.Client, Dialect: &dialect, Purpose: policy.Purpose(r.Purpose)}, Origin: o, Target: target(r),
		UserAgent: cmp.Or(r.SentUserAgent, r.UserAgent), Tunnel: r.Via == audit.Tunnel,
	}
	if r.ProductToken != "" && r.ProductToken != "*" {
		req.Client.ProductToken = r.ProductToken
	}
	return j.policies[usage].Judge(req, j.snap, time.Time{}), nil
}

func newOrigin(r *audit.Record) (origin.Origin, error) { return origin.New(r.Scheme, r.Host, r.Port) }

// target returns path and query.
func target(r *audit.Record) string {
	if r.Query == "" {
		return r.Path
	}
	return r.Path + "?" + r.Query
}

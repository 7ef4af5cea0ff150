package audit_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/ratelimit"
)

// A known gap of zero is written as 0, and an unknown gap is omitted.
func TestGapsThatAreKnown(t *testing.T) {
	for _, known := range []bool{true, false} {
		var rec audit.Record
		rec.SetGrant(ratelimit.Grant{})
		if known {
			rec.SetGap(0)
		}
		written, err := json.Marshal(&rec)
		if err != nil || strings.Contains(string(written), `"gap_ms":0,`) != known {
			t.Errorf("known %t: %s, %v", known, written, err)
		}
	}
}

// A record has the lane and the release only if they differ from its host and its end.
func TestLaneAndRelease(t *testing.T) {
	end := time.Date(2026, 11, 22, 23, 0, 9, 0, time.UTC)
	for name, tt := range map[string]struct {
		lane     string
		released time.Time
		want     string
	}{
		"usual":           {"a.example", end, `"ended_at":"2026-11-22T23:00:09Z"`},
		"no place":        {"a.example", time.Time{}, `"ended_at":"2026-11-22T23:00:09Z"`},
		"lane of a group": {"example", end, `"lane":"example","ended_at":"2026-11-22T23:00:09Z"`},
		"released before": {"a.example", end.Add(-time.Second), `"released_at":"2026-11-22T23:00:08Z","ended_at":"2026-11-22T23:00:09Z"`},
	} {
		rec := audit.Record{Host: "a.example"}
		rec.SetLane(tt.lane)
		rec.SetEnd(tt.released, end)
		written, err := json.Marshal(&rec)
		want := `{"id":"0000000000000","time":"0001-01-01T00:00:00Z","host":"a.example","decision":"",` + tt.want + `,"bytes":0}`
		if err != nil || string(written) != want {
			t.Errorf("%s:\n got %s, %v\nwant %s", name, written, err, want)
		}
	}
}

// The URL of a license has no credentials.
func TestLicenseWithCredentials(t *testing.T) {
	var r audit.Record
	r.SetDecision(policy.Decision{Usage: "robots.txt: license=https://u:s3cr3t@a.example/terms?token=s3cr3t&v=1 search=y"}, nil)
	if want := "robots.txt: license=https://***@a.example/terms?token=***&v=1 search=y"; r.Usage != want {
		t.Errorf("usage %q, want %q", r.Usage, want)
	}
}

// Only allow has no reason.
func TestDecisionWithoutReason(t *testing.T) {
	for _, outcome := range append([]policy.Outcome{""}, policy.Outcomes...) {
		var r audit.Record
		r.SetDecision(policy.Decision{Outcome: outcome}, nil)
		if (r.Reason == policy.ReasonNone) != (outcome == policy.Allow) {
			t.Errorf("decision %q has the reason %q", outcome, r.Reason)
		}
	}
}

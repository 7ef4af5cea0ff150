package auditquery

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
)

var now = time.Date(2026, 11, 23, 15, 4, 5, 0, time.FixedZone("", 3600))

func TestFilter(t *testing.T) {
	got, err := Words{
		Since: "yesterday", Until: "1h", Host: "*.EXAMPLE", Client: "news", Agent: "NewsBot", Tag: "t", Path: "/p", Rule: "Disallow: /p",
		Decisions: []string{"deny", " would_deny"}, Reasons: []string{"usage-preference"}, Vias: []string{"robots"},
	}.Filter(now)
	if err != nil {
		t.Fatal(err)
	}
	want := audit.Filter{
		Since: time.Date(2026, 11, 22, 0, 0, 0, 0, now.Location()), Until: now.Add(-time.Hour), Host: "*.example",
		Client: "news", Agent: "NewsBot", Tag: "t", Path: "/p", Rule: "Disallow: /p",
		Decisions: []policy.Outcome{policy.Deny, policy.WouldDeny}, Reasons: []policy.Reason{policy.ReasonUsage}, Vias: []audit.Via{audit.Robots},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestFilterErrors(t *testing.T) {
	for _, row := range []struct {
		words Words
		want  string
	}{
		{Words{Since: "soon"}, `since "soon" is no time`},
		{Words{Until: "-1h"}, `until "-1h" is no time`},
		{Words{Since: "1h", Until: "2h"}, `since "1h" is not before until "2h"`},
		{Words{Host: "a b"}, "host "},
		{Words{Decisions: []string{"denied"}}, `decision "denied" is not one of allow, deny`},
		{Words{Reasons: []string{"robot"}}, "did you mean robots?"},
		{Words{Vias: []string{"x"}}, `via "x" is not one of plain`},
	} {
		_, err := row.words.Filter(now)
		var word *Error
		if !errors.As(err, &word) || !strings.Contains(err.Error(), row.want) || !strings.HasPrefix(err.Error(), word.Name) {
			t.Errorf("%+v: %v, want %s", row.words, err, row.want)
		}
	}
}

func TestMoment(t *testing.T) {
	for text, want := range map[string]time.Time{
		"":                     {},
		"30d":                  now.AddDate(0, 0, -30),
		"today":                time.Date(2026, 11, 23, 0, 0, 0, 0, now.Location()),
		"2026-11-22 14:00":     time.Date(2026, 11, 22, 14, 0, 0, 0, now.Location()),
		"2026-11-22T14:00:00Z": time.Date(2026, 11, 22, 14, 0, 0, 0, time.UTC),
	} {
		if got, err := Moment("since", text, now); err != nil || !got.Equal(want) {
			t.Errorf("Moment(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestTopic(t *testing.T) {
	if by, err := Topic("dimension", "agents"); by != audit.ByAgent || err != nil {
		t.Errorf("%q, %v", by, err)
	}
	if _, err := Topic("dimension", "agent"); err == nil || !strings.Contains(err.Error(), "did you mean agents?") {
		t.Error(err)
	}
}

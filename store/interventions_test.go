package store_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/robotsproxy/robotsproxy/policy"
)

// The interventions that were stored last are there for the next process, except those that have ended.
func TestInterventions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	now := time.Now().UTC().Truncate(time.Microsecond)
	stop := policy.Intervention{Kind: policy.Stop, Host: "a.example", Reason: "ticket 812; '--", By: "ops", Since: now}
	slow := policy.Intervention{Kind: policy.Slow, Host: "*", Delay: 30 * time.Second, Reason: "r", By: "b", Since: now.Add(-time.Hour), Until: now.Add(time.Hour)}
	ended := policy.Intervention{Kind: policy.Stop, Host: "*", Reason: "r", By: "b", Since: now.Add(-time.Hour), Until: now}
	before := policy.Intervention{Kind: policy.Bypass, Host: "*", Reason: "r", By: "b", Since: now, Until: now.Add(time.Hour)}
	s := open(t, path)
	for _, all := range [][]policy.Intervention{{before}, {stop, slow, ended}} {
		if err := s.ReplaceInterventions(t.Context(), all); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	defer s.Close()
	for range 2 {
		got, err := s.Interventions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]policy.Intervention{slow, stop}, got); diff != "" {
			t.Errorf("Interventions (-want +got):\n%s", diff)
		}
	}
	twice := []policy.Intervention{stop, stop}
	if err := s.ReplaceInterventions(t.Context(), twice); err == nil {
		t.Error("two stops of one host were stored")
	}
	if got, err := s.Interventions(t.Context()); err != nil || len(got) != 2 {
		t.Errorf("after a list that was not stored: %v, %v; want the list before", got, err)
	}
}

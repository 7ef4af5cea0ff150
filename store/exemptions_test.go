package store_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/store"
)

func TestExemptions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	now := time.Now().UTC().Truncate(time.Microsecond)
	allow := policy.Exemption{
		Host: "*.a.example", Path: "/api/*", Client: "news", Effect: policy.EffectAllow,
		Reason: "contract \"12\"; --", Owner: "Jörg", Until: now.Add(time.Hour),
	}
	deny := policy.Exemption{Host: "b.example", Effect: policy.EffectDeny, Reason: "asked by phone", Owner: "ops"}
	s := open(t, path)
	var want []store.Exemption
	for i, e := range []policy.Exemption{allow, deny, deny} {
		added, err := s.AddExemption(t.Context(), e, now)
		if err != nil {
			t.Fatal(err)
		}
		if added.ID != int64(i+1) {
			t.Errorf("the ID of exemption %d is %d", i+1, added.ID)
		}
		want = append(want, added)
	}
	if err := s.MarkReported(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	for _, id := range []int64{3, 3, 99} {
		if err := s.RemoveExemption(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = open(t, path)
	defer s.Close()
	got, err := s.Exemptions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want = want[:2]
	want[0].Reported = true
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Exemptions (-want +got):\n%s", diff)
	}
	again, err := s.AddExemption(t.Context(), deny, now)
	if err != nil || again.ID != 4 {
		t.Errorf("the next exemption has the ID %d, %v; want 4: an ID is never used again", again.ID, err)
	}
}

package store_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/robotsproxy/robotsproxy/ratelimit"
)

// A pause is there for the next process, as it was kept last, until it is of no use to anybody.
func TestPauses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	now := time.Now().UTC().Truncate(time.Microsecond)
	goesOn := ratelimit.Pause{Key: "b.example", Until: now.Add(time.Hour), Source: ratelimit.RetryAfter, Streak: 2}
	justEnded := ratelimit.Pause{Key: "a.example", Until: now.Add(-20 * time.Minute), Source: ratelimit.Backoff, Streak: 1}
	s := open(t, path)
	for _, p := range []ratelimit.Pause{
		{Key: "b.example", Until: now.Add(time.Minute), Source: ratelimit.Backoff, Streak: 1},
		{Key: "old.example", Until: now.Add(-2 * time.Hour), Source: ratelimit.Backoff, Streak: 9},
		justEnded, goesOn,
		{Key: "b.example", Until: now.Add(30 * time.Minute), Source: ratelimit.Backoff, Streak: 1}, // overtaken on its way
	} {
		if err := s.Keep(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	defer s.Close()
	got, err := s.Kept()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]ratelimit.Pause{justEnded, goesOn}, got); diff != "" {
		t.Errorf("Kept (-want +got):\n%s", diff)
	}
	l, err := ratelimit.New(ratelimit.Options{Pauses: s})
	if err != nil {
		t.Fatal(err)
	}
	if until := l.Paused("b.example"); !until.Equal(goesOn.Until) {
		t.Errorf("b.example is paused until %v, want %v", until, goesOn.Until)
	}
	if until := l.Paused("a.example"); !until.IsZero() {
		t.Errorf("a.example is paused until %v, want not", until)
	}
}
